// Polling of the server for edits of the file.

const PAUSE = 700; // milliseconds between requests

// Calls `renew` with each new net, and `say` with an error message, or "" after the error.
function follow(renew, say) {
  let version = null;
  const ask = async () => {
    try {
      const answer = await fetch("net.json", { cache: "no-store", headers: version ? { "If-None-Match": version } : {} });
      if (answer.status === 200) {
        version = answer.headers.get("ETag");
        renew(await answer.json());
        say("");
      } else if (answer.status !== 304) {
        say(await answer.text());
      }
    } catch {
      say("the server has stopped");
    }
    setTimeout(ask, PAUSE);
  };
  ask();
}
