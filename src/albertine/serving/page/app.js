// The page of `albertine serve`. A view is a form, the requests that it sends, and what it shows of the answers.
// Texts of users, of the model and of the server enter the document as text nodes only.

const { words: WORDS, examples: EXAMPLES } = await (await fetch("page/words.json")).json();
let language = (navigator.languages?.[0] ?? navigator.language ?? "en").startsWith("zh") ? "zh" : "en";
let token = stored("albertine-token");
let facts = null; // of /analyze/model
let info = null; // of /info
let names = []; // of all models of the server
let problem = null; // why these two are not there
const states = {}; // by view: values of its fields, answers, what is selected
const $ = (id) => document.getElementById(id);

// ---- words, elements, numbers

function word(key, values = {}) {
  const text = WORDS[key][language === "zh" ? 1 : 0];
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function stored(name, value) {
  try { // a browser may refuse to store anything
    if (value !== undefined) sessionStorage.setItem(name, value);
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return value ?? "";
  }
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const count = (number) => number.toLocaleString(language);
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const visible = (text) => text.trim() || "␣";
const spelled = (token) => token.replace(/^▁(?=.)/, ""); // a piece of SentencePiece without the mark of its word
const letters = (text) => Array.from(text); // places of the server count code points

// ---- requests

class Failure extends Error {}

async function call(path, body, signal) {
  const headers = {};
  // Headers hold bytes: those of UTF-8, one a letter.
  if (token) headers.authorization = "Bearer " + String.fromCharCode(...new TextEncoder().encode(token));
  let response, text;
  try {
    const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    response = await fetch(path || "./", { ...options, headers, signal, cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(word("gone"));
  }
  if (path === "metrics" && response.ok) return text;
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Failure(word("strange", { status: response.status }));
  }
  if (response.ok) return answer;
  if (response.status === 401) {
    $("token-box").hidden = false;
    $("token").focus();
  }
  const known = response.status === 401 ? "tokenWrong" : answer.code;
  const message = known in WORDS ? word(known, answer.details) : answer.error ?? text;
  throw new Failure(message);
}

// ---- parts of pictures

function bars(rows) {
  const most = Math.max(1, ...rows.map((row) => Math.abs(row.value)));
  return el("ul", { className: "bars" }, ...rows.map(({ name, value, shown, lang }) => {
    const filled = el("i");
    filled.style.width = `${(100 * Math.max(0, value)) / most}%`;
    return el("li", {},
      el("span", { className: "name", lang: lang ?? "" }, name),
      el("span", { className: "bar", ariaHidden: "true" }, filled),
      el("span", { className: "value" }, shown ?? percent(value)));
  }));
}

function shaded(node, share) {
  node.classList.add("shade");
  node.style.setProperty("--part", (0.6 * Math.min(1, Math.max(0, share))).toFixed(3));
  return node;
}

function table(caption, head, rows, numeric = () => false) {
  const cells = (kind, row) => row.map((cell, i) => {
    const found = cell instanceof HTMLTableCellElement ? cell : el(i === 0 && kind === "td" ? "th" : kind, {}, cell);
    if (i === 0 && kind === "td") found.scope = "row";
    if (kind === "th") found.scope = "col";
    if (numeric(i)) found.classList.add("number");
    return found;
  });
  const made = el("table", {}, el("caption", {}, caption));
  if (head) made.append(el("thead", {}, el("tr", {}, ...cells("th", head))));
  made.append(el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells("td", row)))));
  // With a focus of its own, so that the keyboard can scroll it.
  return el("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, made);
}

function matrix(caption, names, values, heads = names) {
  const cell = (value) => shaded(el("td", { className: "number" }, value.toFixed(2)), value);
  return table(caption, ["", ...heads], values.map((row, i) => [names[i], ...row.map(cell)]));
}

function marked(text, spans) {
  const box = el("p", { className: "passage" }), all = letters(text);
  let at = 0;
  for (const { start, end, label } of [...spans].sort((a, b) => a.start - b.start)) {
    if (start < at || end <= start) continue;
    box.append(all.slice(at, start).join(""), el("mark", {}, all.slice(start, end).join("")));
    if (label) box.lastChild.append(el("small", {}, label));
    at = end;
  }
  box.append(all.slice(at).join(""));
  return box;
}

function slider(id, most, value, describe, onChange) {
  const label = el("label", { htmlFor: id }, describe(value));
  const input = el("input", { type: "range", id, min: 0, max: most, step: 1 });
  input.value = value;
  input.setAttribute("aria-valuetext", describe(value));
  input.oninput = () => {
    label.textContent = describe(Number(input.value));
    input.setAttribute("aria-valuetext", label.textContent);
    onChange(Number(input.value));
  };
  return el("div", {}, label, input);
}

function tokenButtons(tokens, pressed, onClick, shares) {
  return el("ul", { className: "tokens" }, ...tokens.map((text, i) => {
    const button = el("button", { type: "button", ariaPressed: String(pressed(i)), onclick: () => onClick(i) }, text);
    if (shares) shaded(button, shares[i]);
    return el("li", {}, button);
  }));
}

// ---- views

const has = (task) => facts.tasks.includes(task);
const modelType = (name) => info.model_type[name] !== undefined;

const VIEWS = {
  fill: {
    when: () => has("fill-mask"),
    fields: { inputs: "area" },
    requests: ({ inputs }) => {
      const requests = [["tokenize", { inputs, add_special_tokens: false }]];
      if (!inputs.includes(facts.mask)) return requests;
      requests.push(["", { inputs, parameters: { top_k: 5 } }]);
      if (!missing("lens")) requests.push(["analyze/lens", { inputs, top_k: 5 }, "optional"]);
      return requests;
    },
    show: showFill,
  },
  classify: {
    when: () => has("classify"),
    fields: () => ({ first: "area", ...(facts.pairs === false ? {} : { pair: facts.pairs ? "area" : "optional" }) }),
    requests: ({ first, pair }) => [["predict", { inputs: pair ? [first, pair] : first }]],
    show: (box, own, [answer]) => {
      const score = modelType("reranker");
      box.append(bars(answer.map((one) => score
        ? { name: word("score"), value: one.score, shown: one.score.toFixed(3) }
        : { name: one.label, value: one.score })));
      return `${answer[0].label}: ${score ? answer[0].score.toFixed(3) : percent(answer[0].score)}`;
    },
  },
  choose: {
    when: () => has("choose"),
    fields: { passage: "area", question: "line", options: "lines" },
    least: { options: 2 },
    requests: ({ passage, question, options }) => [["choose", { passage, question, options: lines(options) }]],
    show: (box, own, [answer]) => {
      box.append(bars(answer.map((one) => ({ name: one.option, value: one.score }))));
      return `${answer[0].option}: ${percent(answer[0].score)}`;
    },
  },
  answer: {
    when: () => has("answer"),
    fields: { passage: "area", question: "line" },
    requests: ({ question, passage }) => [["", { inputs: { question, context: passage }, parameters: { top_k: 5 } }]],
    show: (box, own, [answers]) => {
      const [best] = answers;
      box.append(marked(own.sent.passage, best.answer ? [best] : []));
      box.append(bars(answers.map((one) => ({ name: one.answer || word("noAnswer"), value: one.score }))));
      return best.answer || word("noAnswer");
    },
  },
  tag: {
    when: () => has("tag"),
    fields: { inputs: "area" },
    requests: ({ inputs }) => [["", { inputs }]],
    show: (box, own, [entities]) => {
      box.append(marked(own.sent.inputs, entities.map((one) => ({ ...one, label: one.entity_group }))));
      if (!entities.length) return nothing(box);
      box.append(table(word("tag"), [word("entity"), word("kind"), word("probability")],
        entities.map((one) => [one.word, one.entity_group, one.score === null ? "–" : percent(one.score)]), (i) => i === 2));
      return entities.map((one) => `${one.word} (${one.entity_group})`).join(", ");
    },
  },
  relate: {
    when: () => has("relate"),
    fields: { inputs: "area" },
    requests: ({ inputs }) => [["relate", { inputs }]],
    show: (box, own, [triples]) => {
      box.append(marked(own.sent.inputs, triples.flatMap((one) => [one.subject, one.object])));
      if (!triples.length) return nothing(box);
      box.append(table(word("relate"), [word("subject"), word("predicate"), word("object")],
        triples.map((one) => [one.subject.text, one.predicate, one.object.text])));
      return triples.map((one) => `${one.subject.text} – ${one.predicate} – ${one.object.text}`).join("; ");
    },
  },
  similar: {
    when: () => has("embed"),
    fields: { texts: "lines" },
    least: { texts: 2 },
    requests: ({ texts }) => [["embed", { inputs: lines(texts), normalize: true }]],
    show: (box, own, [vectors]) => {
      const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
      const names = lines(own.sent.texts).map((text, i) => `${i + 1}. ${text}`);
      const values = vectors.map((a) => vectors.map((b) => cosine(a, b)));
      box.append(matrix(word("similar"), names, values, names.map((_, i) => String(i + 1))));
      return word("done");
    },
  },
  rank: {
    when: () => modelType("reranker") || (has("embed") && !modelType("classifier")),
    fields: { query: "line", texts: "lines" },
    least: { texts: 2 },
    requests: ({ query, texts }) => [["rerank", { query, texts: lines(texts), return_text: true }]],
    show: (box, own, [answer]) => {
      box.append(bars(answer.map((one) => ({ name: one.text, value: one.score, shown: one.score.toFixed(3) }))));
      return answer[0].text;
    },
  },
  order: {
    needs: "sentence-order",
    fields: { first: "area", second: "area" },
    requests: ({ first, second }) => [["sentence-order", { first, second }]],
    show: (box, own, [{ score, objective }]) => {
      const [yes, no] = objective === "nsp" ? ["follows", "notFollows"] : ["inOrder", "notInOrder"];
      box.append(bars([{ name: word(yes), value: score }, { name: word(no), value: 1 - score }]));
      return `${word(score >= 0.5 ? yes : no)}: ${percent(Math.max(score, 1 - score))}`;
    },
  },
  lens: {
    needs: "lens",
    fields: { inputs: "area" },
    requests: ({ inputs }) => [["analyze/lens", { inputs, top_k: 5 }]],
    show: showLens,
  },
  attention: {
    needs: "attention",
    fields: { inputs: "area" },
    requests: ({ inputs }) => [["analyze/attention", { inputs }]],
    show: showAttention,
  },
  states: {
    needs: "layers",
    fields: { texts: "lines" },
    requests: ({ texts }) => [["analyze/layers", { inputs: lines(texts) }]],
    show: showStates,
  },
  model: { when: () => true, live: showModel },
  server: { when: () => true, live: showServer },
};

function nothing(box) {
  box.append(el("p", { className: "note" }, word("nothing")));
  return word("nothing");
}

// ---- masks

function showFill(box, own, [[tokens], answer, lens]) {
  const all = letters(own.sent.inputs);
  const isMask = (i) => all.slice(tokens[i].start, tokens[i].stop).join("").trim() === facts.mask;
  const masks = tokens.map((_, i) => i).filter(isMask);
  if (own.hidden?.length !== masks.length) own.hidden = masks.map(() => null);
  const guesses = !answer ? [] : Array.isArray(answer[0]) ? answer : [answer];
  const toggle = (i) => {
    const number = masks.filter((j) => j < i).length;
    let text = facts.mask;
    if (isMask(i)) {
      text = own.hidden[number] ?? guesses[number]?.[0].token_str ?? "";
      own.hidden.splice(number, 1);
    } else {
      own.hidden.splice(number, 0, all.slice(tokens[i].start, tokens[i].stop).join(""));
    }
    own.values.inputs = all.slice(0, tokens[i].start).join("") + text + all.slice(tokens[i].stop).join("");
    own.focus = i;
    $("field-inputs").value = own.values.inputs;
    run("fill");
  };
  const names = tokens.map((one) => all.slice(one.start, one.stop).join(""));
  const strip = tokenButtons(names.slice(0, 400), isMask, toggle);
  strip.setAttribute("aria-label", word("tokens"));
  box.append(strip);
  if (own.focus !== undefined) strip.children[Math.min(own.focus, names.length - 1)]?.firstChild.focus();
  own.focus = undefined;
  if (!answer) {
    box.append(el("p", { className: "note" }, word("noMask")));
    return word("noMask");
  }
  const found = el("div");
  const paint = (rows) => found.replaceChildren(...rows.map((one, i) => maskBars(i, one, rows.length)));
  if (lens?.failed) box.append(el("p", { className: "note" }, lens.failed));
  if (lens?.positions) {
    const change = (depth) => {
      own.depth = depth;
      paint(lens.positions.map((one) => one.guesses[depth]));
    };
    const { layers } = lens, deepest = lens.depths.at(-1);
    const describe = (depth) => word(depth === 0 ? "embeddings" : depth > layers ? "beyond" : "depth", { depth, layers });
    own.depth = Math.min(own.depth ?? layers, deepest);
    box.append(slider("depth", deepest, own.depth, describe, change),
      el("p", { className: "quiet" }, word(deepest > layers ? "depthShared" : "depthHelp")));
    change(own.depth);
  } else paint(guesses);
  box.append(found);
  return guesses.map((rows) => `${rows[0].token_str} ${percent(rows[0].score)}`).join(", ");
}

function maskBars(i, rows, masks) {
  const shown = bars(rows.map((row) => ({ name: visible(row.token_str), value: row.score, lang: facts.language })));
  if (masks === 1) return shown;
  return el("section", {}, el("h3", {}, word("mask", { number: i + 1, text: visible(rows[0].token_str) })), shown);
}

// ---- depth and attention

function showLens(box, own, [{ tokens, positions, depths, layers }]) {
  const rows = positions.map(({ place, answer, guesses }) => [spelled(answer ?? tokens[place]), ...guesses.map((all) => {
    const [best] = all, cell = shaded(el("td", { lang: facts.language }, visible(best.token_str)), best.score);
    if (answer !== null && spelled(answer) === best.token_str) cell.append(" ✓");
    cell.title = all.map((one) => `${one.token_str} ${percent(one.score)}`).join("\n");
    return cell;
  })]);
  const heads = depths.map((depth) => (depth === layers ? `${depth} *` : String(depth)));
  box.append(table(word("lens"), [word("tokens"), ...heads], rows), el("p", { className: "quiet" }, word("lensStar", { layers })));
  return word("done");
}

function showAttention(box, own, [{ tokens: pieces, weights, entropy, similarity }]) {
  const tokens = pieces.map(spelled), layers = weights.length, picture = el("div");
  own.layer = Math.min(own.layer ?? layers, layers);
  own.token = Math.min(own.token ?? 1, tokens.length - 1);
  own.head ??= 0; // 0: the mean
  const select = el("select", { id: "head" }, el("option", { value: 0 }, word("headMean")),
    ...weights[0].map((_, i) => el("option", { value: i + 1 }, String(i + 1))));
  select.value = own.head;
  const paint = () => {
    const heads = own.head ? [weights[own.layer - 1][own.head - 1]] : weights[own.layer - 1];
    const map = tokens.map((_, i) => tokens.map((_, j) => heads.reduce((sum, head) => sum + head[i][j], 0) / heads.length));
    const row = map[own.token], most = Math.max(...row);
    const best = row.map((value, i) => ({ name: tokens[i], value })).sort((a, b) => b.value - a.value).slice(0, 5);
    const choose = (i) => {
      own.token = i;
      paint();
      picture.querySelectorAll(".tokens button")[i].focus();
    };
    const strip = tokenButtons(tokens, (i) => i === own.token, choose, row.map((value) => value / most));
    strip.setAttribute("aria-label", word("tokens"));
    picture.replaceChildren(strip, el("h3", {}, word("attends", { token: tokens[own.token] })), bars(best), heatmap(map, tokens));
  };
  select.onchange = () => {
    own.head = Number(select.value);
    paint();
  };
  const layer = slider("layer", layers, own.layer, (one) => word("layer", { layer: one, layers }), (one) => {
    own.layer = one;
    paint();
  });
  layer.lastChild.min = 1;
  const numbers = Array.from({ length: layers }, (_, i) => String(i + 1));
  const flat = Math.log(tokens.length);
  const rows = entropy.map((row, i) => [numbers[i], ...row.map((value) => shaded(el("td", { className: "number" }, value.toFixed(2)), value / flat))]);
  paint();
  box.append(layer, el("div", { className: "row" }, el("label", { htmlFor: "head" }, word("head")), select), picture,
    table(word("entropy"), ["", ...entropy[0].map((_, i) => String(i + 1))], rows), matrix(word("mapsAlike"), numbers, similarity));
  return word("done");
}

function heatmap(map, tokens) {
  const size = map.length, cell = Math.max(3, Math.min(20, Math.floor(480 / size))), edge = cell < 12 ? 0 : 90;
  const picture = { width: edge + size * cell, height: edge + size * cell };
  const canvas = el("canvas", { ...picture, role: "img", ariaLabel: `${word("map")}: ${tokens.join(" ")}` });
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.body);
  pen.fillStyle = style.getPropertyValue("--accent");
  pen.font = `${cell - 5}px ${style.fontFamily}`;
  map.forEach((row, i) => row.forEach((value, j) => {
    pen.globalAlpha = Math.sqrt(value);
    pen.fillRect(edge + j * cell, edge + i * cell, cell, cell);
  }));
  Object.assign(pen, { fillStyle: style.color, globalAlpha: 1 });
  if (edge) tokens.forEach((token, i) => {
    pen.textAlign = "end";
    pen.fillText(token, edge - 5, edge + (i + 0.75) * cell, edge - 8);
    pen.save();
    pen.translate(edge + (i + 0.75) * cell, edge - 5);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "start";
    pen.fillText(token, 0, 0, edge - 8);
    pen.restore();
  });
  return el("figure", {}, el("figcaption", { className: "quiet" }, word("map")), canvas);
}

// ---- states of layers

function showStates(box, own, [answer]) {
  const charts = el("div", { className: "charts" });
  for (const name of ["distance", "cosine", "norm", "effective_rank", "curvature", "anisotropy"]) {
    const { mean, low, high } = answer[name], known = mean.findIndex((value) => value !== null);
    const parts = [mean, low, high].map((values) => values.slice(known)); // the first state may have no value
    const start = mean.length === answer.cka.length ? (answer.zero_start ? "depthFromZeros" : "depthNumber") : "layerNumber";
    if (known >= 0) charts.append(chart(word(name), parts, known + (start === "layerNumber" ? 1 : 0), word(start)));
  }
  box.append(charts);
  box.append(matrix(word("cka"), answer.cka.map((_, i) => String(i)), answer.cka));
  return word("done");
}

function chart(title, [mean, low, high], first, axis) {
  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const width = 440, height = 200, left = 56, bottom = 150, known = low[0] !== null;
  const least = Math.min(...mean, ...(known ? low : [])), most = Math.max(...mean, ...(known ? high : []));
  const x = (i) => left + ((width - left - 12) * i) / Math.max(1, mean.length - 1);
  const y = (value) => bottom - ((bottom - 12) * (value - least)) / (most - least || 1);
  const points = (values) => values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${mean.map((value) => value.toPrecision(3)).join(", ")}` },
    svg("line", { class: "axis", x1: left, x2: width, y1: bottom, y2: bottom }), svg("line", { class: "axis", x1: left, x2: left, y1: 8, y2: bottom }),
    ...(known ? [svg("polygon", { class: "band", points: [...points(high), ...points(low).reverse()].join(" ") })] : []),
    svg("polyline", { class: "line", points: points(mean).join(" ") }),
    ...[least, (least + most) / 2, most].map((value) => svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toPrecision(3))),
    ...mean.map((_, i) => svg("text", { x: x(i), y: bottom + 16, "text-anchor": "middle" }, String(i + first))),
    ...mean.map((value, i) => svg("circle", { class: "point", cx: x(i), cy: y(value), r: 3 })),
    svg("text", { x: (left + width) / 2, y: height - 14, "text-anchor": "middle" }, axis));
  return el("figure", {}, el("figcaption", {}, title), picture);
}

// ---- model and server

function planInWords() {
  const { attention, feed_forward: feedForward } = facts.plan, layers = attention.length;
  const blocks = [attention, feedForward].map((all) => new Set(all).size);
  const same = blocks[0] === blocks[1] && attention.every((block, i) => block === feedForward[i]);
  const key = layers === 1 ? "planOne" : same && blocks[0] === 1 ? "planShared" : same && blocks[0] === layers ? "planOwn" : same ? "planGroups" : "planMixed";
  return word(key, { layers, blocks: blocks[0], feedForward: blocks[1] });
}

function showModel(box) {
  const { plan, sizes, costs, card } = facts;
  const blocks = (kind) => plan[kind].map((block) => {
    const cell = el("td", { className: "block" }, String(block + 1));
    cell.style.background = `hsl(${(block * 67 + 215) % 360} 70% 50% / .3)`;
    return cell;
  });
  box.append(
    el("p", {}, planInWords()),
    table(word("plan"), ["", ...plan.attention.map((_, i) => String(i + 1))],
      [[word("planAttention"), ...blocks("attention")], [word("planFeedForward"), ...blocks("feed_forward")]]),
    table(word("sizes"), null, Object.entries(sizes).map(([name, value]) => [word(name), count(value)]), (i) => i === 1));
  if (costs === null) box.append(el("p", { className: "note" }, word("noCosts")));
  else box.append(table(word("costs"), null, [
    [word("parameters"), count(costs.total)],
    [word("part_embeddings"), count(costs.parameters.embeddings + costs.parameters.mapping)],
    [word("part_encoder"), count(costs.parameters.encoder)],
    [word("memory"), `${(costs.memory_bytes.weights_float32 / 1e6).toFixed(1)} MB`],
    ...Object.entries(costs.inference_flops_per_token).map(([length, flops]) =>
      [word("flops", { length }), `${(flops / 1e6).toFixed(1)} M`]),
  ], (i) => i === 1));
  box.append(el("h3", {}, word("card")), card === null ? el("p", { className: "note" }, word("noCard")) : markdown(card));
}

function markdown(text) {
  const box = el("div", { lang: "en" });
  const inline = (line) => line.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\*\*/g, "").split("`")
    .map((part, i) => (i % 2 ? el("code", {}, part) : part));
  const cells = (line) => line.replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  for (const [block] of text.matchAll(/```[\s\S]*?```|(?:^\|.*\n?)+|(?:^[-*] .*\n?)+|^#+ .*|(?:^(?!```|\||[-*] |#).+\n?)+/gm)) {
    if (block.startsWith("```")) box.append(el("pre", {}, block.replace(/^```.*\n|```$/g, "")));
    else if (block.startsWith("#")) box.append(el("h4", {}, ...inline(block.replace(/^#+ /, ""))));
    else if (/^[-*] /.test(block)) box.append(el("ul", {}, ...block.trim().split("\n").map((line) => el("li", {}, ...inline(line.slice(2))))));
    else if (block.startsWith("|")) {
      const [head, , ...rows] = block.trim().split("\n").map(cells);
      box.append(table(word("card"), head, rows.map((row) => row.map((cell) => el("span", {}, ...inline(cell)))), (i) => i > 0));
    } else box.append(el("p", {}, ...inline(block.trim())));
  }
  return box;
}

function showServer(box) {
  const update = async () => {
    if (!box.isConnected) return;
    try {
      if (!document.hidden) box.replaceChildren(...serverTables(await call("metrics")));
    } catch (error) {
      box.replaceChildren(el("p", { className: "note", role: "alert" }, error.message));
    }
    setTimeout(update, 2000);
  };
  setTimeout(update);
}

function serverTables(text) {
  const samples = [...text.matchAll(/^albertine_(\w+)(?:\{(.*)\})? (\S+)$/gm)]
    .map(([, name, labels, value]) => ({ name, value: Number(value), labels: Object.fromEntries([...(labels ?? "").matchAll(/(\w+)="([^"]*)"/g)].map((m) => [m[1], m[2]])) }));
  const sum = (name, test = () => true) => samples.filter((one) => one.name === name && test(one.labels)).reduce((all, one) => all + one.value, 0);
  const mean = (name) => `${(1000 * sum(`${name}_sum`) / (sum(`${name}_count`) || 1)).toFixed(2)} ms`;
  const used = samples.filter((one) => one.name === "requests_total" && one.value > 0);
  return [
    table(word("server"), null, [
      [word("waiting"), count(sum("queue_items"))], [word("waitingTokens"), count(sum("queue_tokens"))],
      [word("limitTokens"), count(info.max_batch_tokens)],
      [word("computed"), count(sum("items_total"))], [word("computedTokens"), count(sum("tokens_total", (labels) => labels.what === "computed"))],
      [word("stepTime"), mean("step_seconds")], [word("requestTime"), mean("total_seconds")],
      [word("rejected"), count(sum("rejects_total"))], [word("version"), info.version],
    ], (i) => i === 1),
    table(word("requests"), [word("route"), word("status"), word("number")],
      used.map((one) => [one.labels.route, one.labels.code, count(one.value)]), (i) => i > 0),
  ];
}

// ---- the view on the screen

function missing(id) { // why the model does not have a view; null: it does
  const { needs, when } = VIEWS[id];
  if (needs) return facts.views[needs] === null ? null : word("unavailable", { why: facts.views[needs] });
  return when() ? null : word("noHead", { tasks: facts.tasks.join(", ") });
}

function current() {
  const chosen = location.hash.slice(1);
  return Object.hasOwn(VIEWS, chosen) ? chosen : Object.keys(VIEWS).find((id) => missing(id) === null);
}

function fieldsOf(id) {
  const { fields } = VIEWS[id];
  return typeof fields === "function" ? fields() : fields ?? {};
}

function examplesOf(id) {
  const other = facts.language === "zh" ? "en" : "zh";
  const all = [facts.language, other].flatMap((one) => EXAMPLES[one]?.[id] ?? []);
  return all.map((one) => Object.fromEntries(Object.entries(one).map(([name, text]) => [name, text.replaceAll("[MASK]", facts.mask)])));
}

function valuesOf(id, example) {
  const fields = Object.entries(fieldsOf(id));
  return Object.fromEntries(fields.map(([name, kind]) => [name, kind === "optional" ? "" : example[name] ?? ""]));
}

function stateOf(id) {
  if (!states[id]) {
    states[id] = { values: valuesOf(id, examplesOf(id)[0] ?? {}), answers: null, problem: "" };
  }
  return states[id];
}

function draw(moveFocus = true) {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  $("language").value = language;
  $("models").hidden = names.length < 2;
  $("model").replaceChildren(...names.map((name) => el("option", { value: name, selected: name === facts?.name }, name)));
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = word(node.dataset.word);
  for (const node of document.querySelectorAll("[data-label]")) node.ariaLabel = word(node.dataset.label);
  if (!facts) return drawProblem();
  const id = current(), view = VIEWS[id], own = stateOf(id);
  document.title = `${word(id)} – ${facts.name}`;
  $("name").textContent = facts.name;
  const values = { plan: planInWords(), format: info.model_dtype, length: count(info.max_input_length) };
  $("summary").textContent = facts.costs
    ? word("summary", { ...values, total: count(facts.costs.total) })
    : word("summaryShort", values);
  $("views").replaceChildren(...Object.keys(VIEWS).filter((one) => one === id || !missing(one) || facts.costs === null && VIEWS[one].needs).map((one) => {
    const link = el("a", { href: `#${one}` }, word(one));
    if (one === id) link.setAttribute("aria-current", "page");
    return el("li", {}, link);
  }));
  const about = word(id === "order" && own.answers?.[0].objective === "nsp" ? "orderNext" : `${id}About`, { mask: facts.mask });
  $("view").replaceChildren(el("h2", {}, word(id)), el("p", { className: "quiet" }, about));
  if (missing(id)) {
    $("view").append(el("p", { className: "note" }, missing(id)));
  } else if (view.live) {
    const box = el("div");
    $("view").append(box);
    view.live(box);
  } else {
    $("view").append(formOf(id), el("p", { id: "problem", role: "alert" }), el("section", { id: "result", ariaLabel: word("result") }),
      el("p", { id: "status", className: "heard", role: "status" }));
    if (own.answers || own.problem) showAnswers(id);
    else if (Object.values(own.values).some(Boolean)) run(id);
  }
  if (moveFocus) window.scrollTo(0, 0);
}

function drawProblem() {
  const again = problem ? [el("button", { type: "button", onclick: load }, word("again"))] : [];
  $("view").replaceChildren(el("p", { role: problem ? "alert" : "status" }, problem ?? word("loading")), ...again);
}

function formOf(id) {
  const own = stateOf(id), form = el("form");
  const examples = examplesOf(id);
  if (examples.length) {
    const select = el("select", { id: "example" }, el("option", { value: "" }, word("chooseExample")),
      ...examples.map((one, i) => el("option", { value: i }, letters(Object.values(one).join(" · ").replaceAll("\n", " / ")).slice(0, 60).join(""))));
    select.onchange = () => {
      if (select.value === "") return;
      Object.assign(own, { values: valuesOf(id, examples[select.value]), answers: null, hidden: null });
      draw(false);
      $("example").focus();
    };
    form.append(el("div", { className: "row" }, el("label", { htmlFor: "example" }, word("example")), select));
  }
  for (const [name, kind] of Object.entries(fieldsOf(id))) {
    const input = kind === "line" ? el("input", { type: "text" }) : el("textarea", { rows: kind === "lines" ? 4 : 3 });
    Object.assign(input, { id: `field-${name}`, value: own.values[name], lang: facts.language, autocomplete: "off" });
    input.oninput = () => { own.values[name] = input.value; };
    input.onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    };
    form.append(el("label", { htmlFor: input.id }, word(name)), input);
  }
  form.append(el("div", { className: "row" }, el("button", { className: "main" }, word("run"))));
  form.onsubmit = (event) => {
    event.preventDefault();
    run(id);
  };
  return form;
}

function firstEmpty(id) {
  for (const [name, kind] of Object.entries(fieldsOf(id))) {
    const least = VIEWS[id].least?.[name] ?? (kind === "optional" || name === "question" && id === "choose" ? 0 : 1);
    const given = kind === "lines" ? lines(states[id].values[name]).length : Number(states[id].values[name].trim() !== "");
    if (given < least) return { name, text: word(least > 1 ? "missingLines" : "missing", { field: word(name), count: least }) };
  }
  return null;
}

async function run(id) {
  const view = VIEWS[id], own = states[id], empty = firstEmpty(id);
  own.controller?.abort();
  const controller = own.controller = new AbortController();
  own.problem = empty?.text ?? "";
  if (empty) {
    own.answers = null;
    showAnswers(id);
    return $(`field-${empty.name}`)?.focus();
  }
  $("result")?.setAttribute("aria-busy", "true");
  const sent = { ...own.values }, requests = view.requests(sent);
  try {
    const answers = await Promise.all(requests.map(([path, body, optional]) => {
      const answer = call(path, body, controller.signal);
      return optional ? answer.catch((error) => ({ failed: error.message })) : answer;
    }));
    if (controller.signal.aborted) return;
    Object.assign(own, { answers, sent, requests });
  } catch (error) {
    if (controller.signal.aborted) return;
    if (!(error instanceof Failure)) throw error;
    Object.assign(own, { answers: null, problem: error.message });
  }
  if (current() === id) showAnswers(id);
}

function showAnswers(id) {
  const own = states[id], box = $("result");
  $("problem").textContent = own.problem;
  box.removeAttribute("aria-busy");
  box.replaceChildren();
  $("status").textContent = "";
  if (!own.answers) return;
  $("status").textContent = VIEWS[id].show(box, own, own.answers);
  box.append(snippets(own.requests.filter(([path]) => path !== "tokenize")));
}

function snippets(requests) {
  const box = el("details", {}, el("summary", {}, word("api")));
  for (const [path, body] of requests) {
    const address = new URL(path || "./", document.baseURI).href.replace(/#.*/, "");
    const json = JSON.stringify(body), key = token ? ' \\\n  -H "Authorization: Bearer $ALBERTINE_TOKEN"' : "";
    const curl = `curl ${address}${key} \\\n  -d '${json.replaceAll("'", "'\\''")}'`;
    const headers = token ? ', {"Authorization": "Bearer " + os.environ["ALBERTINE_TOKEN"]}' : "";
    const python = [
      `import json${token ? ", os" : ""}, urllib.request`, "",
      `body = ${pythonValue(body)}`,
      `address = ${JSON.stringify(address)}`,
      `request = urllib.request.Request(address, json.dumps(body).encode()${headers})`,
      "print(json.load(urllib.request.urlopen(request)))",
    ].join("\n");
    for (const [name, code] of [["curl", curl], ["Python", python]]) {
      const text = el("pre", { tabIndex: 0, ariaLabel: name }, code), copy = el("button", { type: "button" }, `${word("copy")}: ${name}`);
      copy.onclick = () => copyText(text, copy);
      box.append(text, copy);
    }
  }
  return box;
}

function pythonValue(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonValue(one)}`).join(", ")}}`;
}

async function copyText(node, button) {
  try { // only pages of this machine or by HTTPS may write to the clipboard
    await navigator.clipboard.writeText(node.textContent);
    button.textContent = word("copied");
  } catch {
    getSelection().selectAllChildren(node);
    button.textContent = word("selected");
  }
}

// ---- start

async function load() {
  problem = null;
  if (!facts) drawProblem();
  try {
    let models;
    [facts, info, models] = await Promise.all([call("analyze/model"), call("info"), call("v1/models")]);
    names = models.data.map((one) => one.id);
    $("token-box").hidden = true;
  } catch (error) {
    problem = error.message;
  }
  draw(false);
}

$("language").addEventListener("change", (event) => {
  language = stored("albertine-language", event.target.value) || event.target.value;
  draw(false);
});
$("model").addEventListener("change", (event) => { // each model has the same page below an address of its own
  const root = location.pathname.replace(/models\/[^/]+\/$/, "");
  location.href = `${root}models/${encodeURIComponent(event.target.value)}/${location.hash}`;
});
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = stored("albertine-token", $("token").value.trim());
  load();
});
window.addEventListener("hashchange", () => facts && draw());
language = stored("albertine-language") || language;
draw(false);
load();
