(async () => {
  const app = document.getElementById("app");
  const show = (title, text) => {
    const head = document.createElement("h2");
    head.textContent = title;
    const body = document.createElement("pre");
    body.textContent = text;
    app.append(head, body);
  };
  const kept = document.getElementById("decklog-data");
  const get = async (path) => {
    const response = await fetch("api/v1/" + path);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  };
  try {
    const file = kept ? JSON.parse(kept.textContent) : null;
    const overview = file ? file.overview : await get("overview");
    show("decklog: " + overview.cluster.name, JSON.stringify(overview, null, 1));
    const entries = file ? Object.values(file.entries).map((entry) => entry.summary) : (await get("entries?limit=100")).entries;
    show("Entries", entries.map((entry) => entry.line).join("\n"));
  } catch (error) {
    show("decklog", error.message);
  }
})();
