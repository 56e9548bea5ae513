/* What is begun while the modules still come: light or dark as it was chosen here, before anything is painted; and what
   every page asks for first. It stands before the styles, so that it does not wait for them. */

try {
  const theme = localStorage.getItem("headwater.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // a browser that keeps nothing: what the system asks for
}

/** Whose session this browser has: a secret beside that of its cookie, which goes to every port of the host. */
function secret() {
  try {
    return localStorage.getItem("headwater.session") ?? "1";
  } catch {
    return "1";
  }
}

/* By path, an answer; null where it is to be asked for again, by who waits for it, and says why. */
/** @type {any} */ (window).headwaterBegun = (() => {
  const ending = new AbortController();
  const asked = (/** @type {string} */ path, /** @type {AbortSignal} */ signal = undefined) =>
    fetch(path, {
      headers: { "Headwater-Console": secret(), Accept: "application/json" },
      credentials: "same-origin",
      cache: "no-store",
      signal,
    }).catch(() => null);
  const session = asked("/console/session");
  const then = (/** @type {string} */ path, /** @type {AbortSignal} */ signal = undefined) =>
    session.then((answer) => (answer?.ok ? asked(path, signal) : null));
  const types = ["log", "consumer", "consumerGroup", "durableLink", "stream", "subscription", "server", "client"];
  const surveyed = [...types, "homeServer"];
  const survey = `/management?types=${surveyed.join(",")}&count=1000`;
  return {
    ending, // of the stream
    surveyed,
    answers: {
      "/console/session": session,
      [survey]: then(survey),
      "/health/ready": then("/health/ready"),
      "/console/stream": document.visibilityState === "visible" ? then("/console/stream", ending.signal) : null,
    },
  };
})();
