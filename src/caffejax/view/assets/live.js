// Where a server shows the net: the page asks it whether the file was edited.

const PAUSE = 700; // milliseconds between questions

// Calls `renew` with each new net, and `say` with a sentence while something is wrong, "" once it is not.
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
