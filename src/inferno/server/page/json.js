// JSON as text: read for a schema, and laid out for an answer, its numbers and order untouched.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// The schema that a text holds: { schema } or { problem }, both null where it is empty.
export function readSchema(text) {
    if (!text.trim()) return { schema: null, problem: null };
    let schema;
    try {
        schema = JSON.parse(text);
    } catch (error) {
        return { schema: null, problem: `The schema is not JSON: ${error.message}.` };
    }
    const isObject = typeof schema === "object" && schema !== null && !Array.isArray(schema);
    return isObject
        ? { schema, problem: null }
        : { schema: null, problem: "The schema must be a JSON object, such as {\"type\": \"object\"}." };
}

// An answer in JSON as Markdown: a block of code, laid out once it is whole.
export function asCode(text, isOpen) {
    const shown = isOpen ? text : laidOut(text);
    const longest = Math.max(2, ...[...shown.matchAll(/`+/g)].map(([run]) => run.length));
    const fence = "`".repeat(longest + 1);
    return `${fence}json\n${shown}${isOpen ? "" : `\n${fence}`}`;
}

// A line for each member; JSON.stringify would round long numbers. What is no JSON stays as it is.
function laidOut(text) {
    try {
        JSON.parse(text);
    } catch {
        return text;
    }
    let made = "";
    let depth = 0;
    const line = () => `\n${"  ".repeat(depth)}`;
    let before = "";
    for (const [token] of text.matchAll(TOKEN)) {
        const isEnd = token === "}" || token === "]";
        if (isEnd) depth -= 1;
        const isEmpty = isEnd && (before === "{" || before === "[");
        if (before === "," || ((before === "{" || before === "[") && !isEmpty)) made += line();
        else if (isEnd && !isEmpty) made += line();
        made += token === ":" ? ": " : token;
        if (token === "{" || token === "[") depth += 1;
        before = token;
    }
    return made;
}
