// Open everything that is folded while the page is printed, so that paper has the experiment and all rows.
{
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const folded of opened) folded.open = true;
  });
  addEventListener("afterprint", () => { for (const folded of opened) folded.open = false; });
}
