"use strict";
// Every heading sorts its column: numbers by value, largest first, texts from a to z; what is absent stays last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const cells = () => [...body.rows].map(row => row.cells[column]);
    const numeric = cells().some(cell => cell.dataset.by !== undefined);
    if (numeric) head.classList.add("end");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort ? head.ariaSort === "ascending" : numeric;
      const key = row => {
        const cell = row.cells[column];
        return numeric ? (cell.dataset.by === undefined ? null : Number(cell.dataset.by)) : cell.textContent;
      };
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        const less = numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
        return down ? -less : less;
      };
      body.append(...[...body.rows].sort(order));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}
