// Operators as people write them: celu, aten::add.Tensor, torch.ops.aten.add.Tensor, --op=…, JSON of `conformance supports`.
(function () {
  "use strict";

  function dotted(word) {
    const plain = word
      .trim()
      .replace(/^--op[= ]/, "")
      .replace(/^torch\.ops\./, "")
      .replace(/::/g, ".")
      .replace(/^["']|["',;]+$/g, "");
    return plain.startsWith("aten.") ? plain : `aten.${plain}`;
  }

  const packet = (name) => name.slice(0, name.lastIndexOf("."));

  // A text → [{word, nodes}], each once; nodes that no operator is known for come with `unmapped`.
  function read(text) {
    const trimmed = text.trim();
    if (trimmed.startsWith("{") || trimmed.startsWith("[")) {
      try {
        return fromJson(JSON.parse(trimmed));
      } catch {
        // Then it is a list of words that begins oddly.
      }
    }
    const found = new Map();
    for (const line of text.split(/\r?\n/)) {
      for (const word of line.replace(/#.*/, "").split(/[\s,;]+/)) {
        if (word && word !== "--op" && !/^(\/\/|--dtype)/.test(word)) found.set(dotted(word), { word, nodes: null });
      }
    }
    return [...found.values()];
  }

  function fromJson(data) {
    // Words, or the answers of `conformance supports --json`: {calls: [{overload}], unmapped: [node type]}.
    const list = Array.isArray(data) ? data : [data];
    const found = new Map();
    for (const one of list) {
      for (const word of typeof one === "string" ? [one] : (one.calls || []).map((call) => call.overload)) {
        found.set(dotted(word), { word, nodes: null });
      }
      for (const word of one.unmapped || []) found.set(`? ${word}`, { word, nodes: null, unmapped: true });
    }
    return [...found.values()];
  }

  // Places in `operators` that a word names: the overload, or all overloads of the operator.
  function find(word, operators, byPacket) {
    const name = dotted(word);
    const exact = operators.indexOf(name);
    if (exact >= 0) return [exact];
    return byPacket.get(name) || [];
  }

  function packets(operators) {
    const found = new Map();
    operators.forEach(function (name, i) {
      const key = packet(name);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(i);
    });
    return found;
  }

  // Whether a name holds every word of a search; a word with * or ? is a glob.
  function matcher(query) {
    const tests = query
      .toLowerCase()
      .replace(/::/g, ".")
      .split(/\s+/)
      .filter(Boolean)
      .map(function (word) {
        if (!/[*?]/.test(word)) return (name) => name.includes(word);
        const pattern = new RegExp(
          `^${word
            .replace(/[.+^${}()|[\]\\]/g, "\\$&")
            .replace(/\*/g, ".*")
            .replace(/\?/g, ".")}$`,
        );
        return (name) =>
          [name, packet(name)].some((one) => pattern.test(one) || pattern.test(one.replace(/^aten\./, "")));
      });
    return (name) => tests.every((test) => test(name.toLowerCase()));
  }

  function listed(list, most) {
    return list.slice(0, most).join(", ") + (list.length > most ? ` and ${list.length - most} more` : "");
  }

  Conformance.names = { read, listed, find, packets, matcher, dotted };
})();
