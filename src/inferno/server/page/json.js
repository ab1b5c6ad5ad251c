// JSON as text: read for a schema, and laid out for an answer, its numbers and order untouched.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const STEPS = { "{": 1, "[": 1, "}": -1, "]": -1 };

// Whether a text holds a schema: { schema }, the text, or { problem }; neither where it is empty.
export function readSchema(text) {
    if (!text.trim()) return {};
    try {
        if (JSON.parse(text)?.constructor === Object) return { schema: text };
        return { problem: "The schema must be a JSON object." };
    } catch (error) {
        return { problem: `The schema is not JSON: ${error.message}.` };
    }
}

// An answer in JSON as Markdown: a block of code, laid out once it is whole.
export function asCode(text, isOpen) {
    const shown = isOpen ? text : laidOut(text);
    let fence = "```";
    while (shown.includes(fence)) fence += "`";
    return `${fence}json\n${shown}${isOpen ? "" : `\n${fence}`}`;
}

// A line for each member; JSON.stringify would round long numbers. What is no JSON stays as it is.
function laidOut(text) {
    try {
        JSON.parse(text);
    } catch {
        return text;
    }
    let [made, depth, before] = ["", 0, ""];
    for (const [token] of text.matchAll(TOKEN)) {
        const step = STEPS[token] ?? 0;
        if (step < 0) depth -= 1;
        const isFirst = STEPS[before] > 0;
        const isEmpty = isFirst && step < 0;
        if (before === "," || ((isFirst || step < 0) && !isEmpty)) made += `\n${"  ".repeat(depth)}`;
        made += token === ":" ? ": " : token;
        if (step > 0) depth += 1;
        before = token;
    }
    return made;
}
