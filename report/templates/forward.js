// Bring a policy forward in every figure while the pointer is on it; a tap or a click keeps it there.
{
  const groups = [...document.querySelectorAll(".fig [data-p]")];
  let kept = null;
  const show = name => {
    document.body.classList.toggle("forward", name !== null);
    for (const group of groups) group.classList.toggle("hit", group.dataset.p === name);
  };
  const near = event => {
    for (const [x, y] of [[0, 0], [0, 4], [0, -4], [4, 0], [-4, 0]]) {
      const group = document.elementFromPoint(event.clientX + x, event.clientY + y)?.closest("[data-p]");
      if (group) return group.dataset.p;
    }
    return null;
  };
  for (const figure of document.querySelectorAll(".fig")) {
    figure.addEventListener("pointermove", event => { if (event.pointerType === "mouse") show(near(event) ?? kept); });
    figure.addEventListener("pointerleave", () => show(kept));
    figure.addEventListener("click", event => {
      const name = near(event);
      kept = name === kept ? null : name;
      show(kept);
    });
  }
}
