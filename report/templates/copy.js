// A button on each command that copies it. Without a clipboard (an old browser) there is no button.
for (const line of navigator.clipboard ? document.querySelectorAll(".command") : []) {
  const text = line.textContent, button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.onclick = () => navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; });
  line.append(button);
}
