"""Word lists of the English sentence splitter: abbreviations, and words that often start a sentence."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A full stop after these never ends a sentence.
NEVER_LAST = _words(
    """
    Mr Mrs Ms Mx Messrs Mme Mmes Mlle Dr Drs Prof Profs Rev Revd Hon Gen Col Maj Capt Cpt Cmdr Cdr Comdr
    Lt Lieut Sgt Cpl Pvt Adm Brig Gov Sen Sens Rep Reps Pres Supt Insp Fr Msgr Mgr Ven Rt Mt Mts vs viz
    cf Cf i.e e.g I.e E.g esp approx incl nr Md
    """
)

# A full stop after these does not end a sentence if a number follows: No. 5, Fig. IV, pp. 10-12.
BEFORE_NUMBER = _words(
    """
    No no Nos nos Nr Vol vol Vols vols Fig fig Figs figs Ch ch Chap chap Chaps chaps Sec sec Sect sect
    Art art Arts arts p pp P Pp Eq eq Eqs eqs Ex ex Op op Pt pt Bk bk Tab tab Ref Refs ref refs para
    paras Para l ll n nn ca c Ser ser Pl pl Lot Div div Reg cap v vv fol ff
    """
)

# A full stop after these ends a sentence only if the next word is one of SENTENCE_STARTERS.
SOMETIMES_LAST = _words(
    """
    Jr jr Sr sr Inc Ltd Co Corp Bros Cie etc al Ave Blvd Rd St Ste Sq Dept dept Univ Assn Bldg Esq Ph.D
    Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Ala Ariz Ark
    Calif Cal Colo Conn Del Fla Ga Ill Ind Kan Ky La Mass Mich Minn Mo Mont Neb Nev Okla Ore Pa Penn
    Penna Tenn Tex Va Vt Wash Wis Wyo est Est ft Ft lb lbs oz cont Cont ed eds Ed Eds trans Trans repr
    Tel tel Ext ext Wm Geo Chas Jas Jos Thos Robt Benj Edw Saml Alex Hist Proc Soc Acad Sci Phil Phys
    Chem Biol Math Engl Intl Natl Govt Dist Supp Suppl Bull Ass Assoc Cath Bp Abp Archbp Eccl Vols hon
    """
)

# After an abbreviation of SOMETIMES_LAST, these words indicate a new sentence.
SENTENCE_STARTERS = _words(
    """
    The A An He She It They We I You His Her Its Their Our My Your This That These Those There Here In
    On At For From By With As After Before During When While Where If But And Or So Yet However Then
    Since Although Though Because Both Some Many Most All Each Every Another Other Others Such To Not
    Now Also According Under Until Upon What Who Whose Why How Which Following Despite Later Meanwhile
    Today Once Over Between Among Through Throughout Within Without Against Like Unlike Several Few
    Moreover Furthermore Therefore Thus Nevertheless Instead Finally Only Even Just Nor Neither Either
    Let Do Did Does Is Was Were Are Has Have Had Can Could Will Would Should May Perhaps Maybe Yes
    """
)
