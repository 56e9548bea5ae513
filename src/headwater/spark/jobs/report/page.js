"use strict";
(() => {
  const tip = document.getElementById("tip");
  const show = (event) => {
    const mark = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute("data-tip");
    const box = tip.getBoundingClientRect(), room = 12;
    const right = event.clientX + room + box.width > window.innerWidth;
    const below = event.clientY + room + box.height > window.innerHeight;
    tip.style.left = Math.max(4, right ? event.clientX - room - box.width : event.clientX + room) + "px";
    tip.style.top = Math.max(4, below ? event.clientY - room - box.height : event.clientY + room) + "px";
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerleave", () => { tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
