// Lists what is wrong with the layout of the open page: an array of sentences. Everything folded is opened first.
(() => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const faults = [];
  const words = /\b(NaN|undefined|Infinity)\b|∞/;
  const shown = document.body.innerText + [...document.querySelectorAll("svg text")].map((t) => t.textContent).join("\n");
  const wrong = shown.match(words);
  if (wrong) faults.push(`the page says ${wrong[0]}: ${shown.slice(Math.max(0, wrong.index - 80), wrong.index + 20)}`);
  for (const drawn of document.querySelectorAll("svg *")) {
    for (const { name, value } of drawn.attributes) {
      if (/^(d|points|x|y|x1|x2|y1|y2|cx|cy|r|width|height|transform)$/.test(name) && words.test(value)) {
        faults.push(`a ${drawn.tagName} has ${name}="${value.slice(0, 60)}"`);
      }
    }
  }
  for (const title of document.querySelectorAll("figcaption, svg text, h1, h2, h3, th, summary")) {
    if (/(…|\.\.\.)$/.test(title.textContent.trim())) faults.push(`cut: "${title.textContent.trim()}"`);
  }
  // Letters may pass the edge of their figure by the roundness of a glyph.
  const slack = 2;
  for (const text of document.querySelectorAll("svg text")) {
    const letters = text.getBoundingClientRect();
    const figure = text.ownerSVGElement.getBoundingClientRect();
    if (letters.width === 0 || figure.width === 0 || getComputedStyle(text).visibility === "hidden") continue;
    const out = Math.max(figure.left - letters.left, letters.right - figure.right, figure.top - letters.top,
      letters.bottom - figure.bottom);
    if (out > slack) faults.push(`"${text.textContent}" leaves its figure by ${Math.round(out)} px`);
  }
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    faults.push(`the page is ${document.documentElement.scrollWidth} px wide, the window ${width}`);
  }
  const scrolls = (element) => {
    for (let at = element.parentElement; at; at = at.parentElement) {
      if (at !== document.body && getComputedStyle(at).overflowX !== "visible") return true;
    }
    return false;
  };
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && box.right > width + 1 && !element.closest("svg svg, svg > *") && !scrolls(element)) {
      faults.push(`<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ends at ${Math.round(box.right)} of ${width} px`);
    }
  }
  return [...new Set(faults)].slice(0, 20);
})()
