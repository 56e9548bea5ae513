/* What is begun while the modules still come: light or dark as it was chosen here, before anything is painted; and who
   asks, which everything else waits for. */

try {
  const theme = localStorage.getItem("headwater.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // a browser that keeps nothing: what the system asks for
}

/** @type {any} */ (window).headwaterAsked = fetch("/console/session", {
  headers: { "Headwater-Console": "1", Accept: "application/json" },
  credentials: "same-origin",
  cache: "no-store",
}).catch(() => null); // it is asked again by who waits for it, and says why
