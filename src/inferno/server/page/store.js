// What survives a reload: the conversation and the settings, in this tab alone.

const CHAT = "inferno.chat";
const SETTINGS = "inferno.settings";
const MAX_CHARACTERS = 1_000_000;

export function loadTurns() {
    const turns = read(CHAT, []);
    return Array.isArray(turns) ? turns.filter(isTurn) : [];
}

function isTurn(turn) {
    return typeof turn?.question === "string" && typeof turn.answer?.text === "string";
}

// The latest turns that fit.
export function saveTurns(turns) {
    const kept = [];
    let room = MAX_CHARACTERS;
    for (const turn of [...turns].reverse()) {
        const text = JSON.stringify(turn);
        room -= text.length;
        if (room < 0) break;
        kept.unshift(text);
    }
    write(CHAT, `[${kept}]`);
}

export function loadSettings() {
    return { ...read(SETTINGS, {}) };
}

export function saveSettings(settings) {
    write(SETTINGS, JSON.stringify(settings));
}

function read(name, otherwise) {
    try {
        return JSON.parse(sessionStorage.getItem(name)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

function write(name, text) {
    try {
        sessionStorage.setItem(name, text);
    } catch {
        // full or forbidden: the page works on, and forgets at the next reload
    }
}
