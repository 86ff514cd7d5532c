// Checks of the document in a browser, as an expression: an object of functions that return what is wrong.
(() => {
  const numbers = (text) => {
    const [r, g, b, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], alpha };
  };
  const over = ({ rgb, alpha }, under) => rgb.map((value, i) => value * alpha + under[i] * (1 - alpha));

  // The colour behind a node: the backgrounds of its ancestors, one over the other.
  function ground(node) {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(numbers(getComputedStyle(at).backgroundColor));
    const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
    return layers.reverse().reduce((under, layer) => over(layer, under), canvas);
  }

  // WCAG 2.2, relative luminance
  function luminance(rgb) {
    const [r, g, b] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(least) {
    const poor = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
      if (!text || !node.checkVisibility() || node.tagName === "OPTION") continue;
      const under = ground(node), ink = over(numbers(getComputedStyle(node).color), under);
      const [light, dark] = [luminance(under), luminance(ink)].sort((a, b) => b - a);
      const ratio = (light + 0.05) / (dark + 0.05);
      if (ratio < least) poor.push([text, ratio]);
    }
    return poor;
  }

  const named = (node) =>
    node.labels?.length || node.ariaLabel || (/^(A|BUTTON|SUMMARY)$/.test(node.tagName) && node.textContent.trim());

  function unlabelled() {
    const kinds = "a, button, input, select, textarea, summary, [tabindex='0'], [role=img]";
    const all = [...document.querySelectorAll(kinds)].filter((node) => node.checkVisibility());
    return all.filter((node) => !named(node)).map((node) => node.outerHTML);
  }

  function controls() {
    const kinds = "a[href], button, input, select, textarea, summary, [tabindex='0']";
    return [...document.querySelectorAll(kinds)].filter((node) => node.checkVisibility()).length;
  }

  // The place of the focus in the document, and whether it is seen.
  function focus() {
    const node = document.activeElement, style = getComputedStyle(node);
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return [[...document.querySelectorAll("*")].indexOf(node), seen];
  }

  return { contrast, unlabelled, controls, focus };
})()
