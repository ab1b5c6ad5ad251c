// What survives a reload: the conversation, the settings and a key, in this tab alone.

const CHAT = "inferno.chat";
const SETTINGS = "inferno.settings";
const KEY = "inferno.key";
const MAX_CHARACTERS = 1_000_000;

let givenKey = null; // for a browser that keeps nothing

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

export function loadKey() {
    return kept(KEY) ?? givenKey;
}

export function saveKey(key) {
    givenKey = key;
    write(KEY, key);
}

function read(name, otherwise) {
    try {
        return JSON.parse(kept(name)) ?? otherwise;
    } catch {
        return otherwise;
    }
}

function kept(name) {
    try {
        return sessionStorage.getItem(name);
    } catch {
        return null; // forbidden
    }
}

function write(name, text) {
    try {
        sessionStorage.setItem(name, text);
    } catch {
        // full or forbidden: the page works on, and forgets at the next reload
    }
}
