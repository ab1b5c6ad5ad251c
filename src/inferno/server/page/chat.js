// The chat page: turns of question and answer, and what a person can do with them.

import { Problem, answer, loadingProgress, numTokens, servedModel } from "./api.js";
import { Settings } from "./settings.js";
import { loadTurns, saveKey, saveTurns } from "./store.js";
import { TurnView, newAnswer } from "./turn.js";

const PATIENCE = 1000; // ms between two looks at a model that is loading
const SAVE_EVERY = 1000; // ms, while an answer comes
const NEAR_THE_END = 80; // px; who is further up stays there
const ROOM = 0.75; // of the context, for what is sent: the rest is for the answer

const $ = (id) => document.getElementById(id);
const settings = new Settings($("settings"));
const turns = []; // { question, answer, isLeftOut, view }
let forgotten = []; // turns that Undo brings back
let running = null; // the AbortController of the answer that is coming
let isEditing = false;
let draft = ""; // what was being written when editing began
let context = 0; // tokens, once it is known
const onceKeyed = new Map(); // what goes on when a key is given
let hasGivenKey = false;

async function begin() {
    for (const { question, answer: saved, isLeftOut } of loadTurns()) {
        const given = { ...newAnswer(), ...saved, end: saved.end ?? "stopped" };
        const turn = addTurn(question, given);
        turn.view.show(given, given.end);
        if (isLeftOut) leaveOut(turn);
    }
    showState();
    scrollTo(0, document.body.scrollHeight);
    listen();
    await meetModel();
}

// Waits until the model is loaded, then tells its name.
async function meetModel() {
    try {
        for (let progress; (progress = await loadingProgress()) !== null; ) {
            const percent = progress ? ` ${Math.round(progress * 100)} %` : "";
            tell(`Loading the model${percent} …`);
            await new Promise((resolve) => setTimeout(resolve, PATIENCE));
        }
        const model = await servedModel();
        $("model").textContent = model.name;
        document.title = `${model.name} · inferno`;
        context = model.context;
        settings.limit(context);
        tell("");
    } catch (problem) {
        if (problem.needsKey) return askForKey("model", meetModel);
        tell(wordsOf(problem));
        setTimeout(meetModel, Math.max(5, problem.retryAfter ?? 0) * 1000);
    }
}

async function ask(question) {
    forget();
    if (!isEditing) return run(addTurn(question, newAnswer()));
    leaveEditing();
    await askAgain(turns.at(-1), question);
}

async function retry() {
    const turn = turns.at(-1);
    if (running || !turn) return;
    await askAgain(turn, turn.question);
}

// Replaces a question and its answer as soon as a new one begins to come; where none does, the old
// ones stay.
async function askAgain(turn, question) {
    const before = { question: turn.question, answer: turn.answer };
    turn.before = isEmpty(before.answer) ? null : before;
    turn.question = question;
    turn.answer = newAnswer();
    turn.view.showQuestion(question);
    const shown = turn.before ? { ...before.answer, problem: "" } : turn.answer;
    turn.view.show(shown, shown.end);
    await run(turn);
    const hasCome = turn.before === null || !isEmpty(turn.answer);
    turn.before = null;
    if (hasCome) return;
    const { problem, wantsRoom } = turn.answer;
    turn.question = before.question;
    turn.answer = { ...before.answer, problem, wantsRoom };
    turn.view.showQuestion(turn.question);
    turn.view.show(turn.answer, turn.answer.end);
    save();
    if (question !== turn.question && turns.includes(turn)) edit(question); // it isn't lost either
}

// Asks what was asked without a key, unless the person has gone on to something else.
async function askKeyed(turn, question) {
    if (running || turns.at(-1) !== turn) return;
    if (isEditing && $("question").value === question) leaveEditing();
    await askAgain(turn, question);
}

function isEmpty(given) {
    return given.text === "" && given.reasoning === "";
}

// Asks for the answer to the last turn, and shows it as it comes.
async function run(turn) {
    const controller = (running = new AbortController());
    const earlier = sentTurns();
    const show = onceAFrame(() => {
        if (turn.answer.end === null) keepTheEnd(() => turn.view.show(turn.answer, null));
    });
    const saving = setInterval(save, SAVE_EVERY);
    showState();
    tell("Answering …");
    scrollTo(0, document.body.scrollHeight);
    try {
        const numLeftOut = await receiveWithRoom(turn, controller.signal, show);
        tell(numLeftOut ? leftOutWords(numLeftOut) : "");
    } catch (problem) {
        const isStopped = controller.signal.aborted;
        turn.answer.end = isStopped ? "stopped" : "failed";
        if (!isStopped) turn.answer.problem = wordsOf(problem);
        turn.answer.wantsRoom = isFull(problem) && sentTurns().length > 0;
        if (isEmpty(turn.answer)) for (const each of earlier) leaveOut(each, false); // in vain
        if (turns.includes(turn)) tell(isStopped ? "Stopped" : "");
        const { question } = turn;
        if (problem.needsKey) askForKey("answer", () => askKeyed(turn, question));
    } finally {
        clearInterval(saving);
        if (running === controller) running = null;
        if (turns.includes(turn)) keepTheEnd(() => turn.view.show(turn.answer, turn.answer.end));
        showState();
        save();
    }
}

// Receives the answer; where the context is full, and the person wishes so, first leaves out the
// oldest turns. Returns how many.
async function receiveWithRoom(turn, signal, show) {
    for (let numLeftOut = 0; ; ) {
        try {
            await receive(turn.answer, signal, show);
            return numLeftOut;
        } catch (problem) {
            const oldest = sentTurns();
            if (!isFull(problem) || !settings.trims || !oldest.length) throw problem;
            const { count, context } = await numTokens(messages([]), signal);
            if (count >= context) throw problem; // nothing would help
            const num = await numToLeaveOut(oldest, signal);
            for (const each of oldest.slice(0, num)) leaveOut(each);
            numLeftOut += num;
        }
    }
}

// The fewest oldest turns without which there is room for an answer; one at least.
async function numToLeaveOut(oldest, signal) {
    let [low, high] = [1, oldest.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        const { count, context } = await numTokens(messages(oldest.slice(middle)), signal);
        if (count <= ROOM * context) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Not where too many tokens were picked for the answer.
function isFull({ code, param }) {
    return code === "context_length_exceeded" && !(param === "max_tokens" && settings.most);
}

function leaveOut(turn, isLeftOut = true) {
    turn.isLeftOut = isLeftOut;
    turn.view.showLeftOut(isLeftOut);
}

function leftOutWords(num) {
    const turnsOf = num === 1 ? "The oldest turn is" : `The ${num} oldest turns are`;
    return `${turnsOf} no longer sent: the context was full.`;
}

async function receive(into, signal, show) {
    const started = performance.now();
    const fields = settings.fields;
    const most = fields.max_completion_tokens;
    let total = 0;
    into.isJson = fields.response_format !== undefined;
    for await (const piece of answer(messages(sentTurns()), fields, signal)) {
        into.seconds = (performance.now() - started) / 1000;
        if (piece.content || piece.reasoning) into.first ??= into.seconds;
        into.text += piece.content;
        into.reasoning += piece.reasoning;
        into.tokens = piece.tokens || into.tokens;
        total = piece.total || total;
        into.finish = piece.end ?? into.finish;
        into.model = piece.model;
        show();
    }
    if (into.model !== $("model").textContent) await meetModel(); // another one since
    const isCutByServer = into.finish === "length" && into.tokens !== most;
    const cut = total < context ? "limit" : "full";
    into.end = isCutByServer ? cut : (into.finish ?? "stop");
}

// Earlier turns that are sent: not those that were left out, nor a question that got no answer.
function sentTurns() {
    return turns.slice(0, -1).filter((turn) => !turn.isLeftOut && turn.answer.text !== "");
}

// These turns and the last question, as the API takes them.
function messages(earlier) {
    const list = settings.system ? [{ role: "system", content: settings.system }] : [];
    for (const { question, answer: given } of earlier) {
        list.push({ role: "user", content: question }, { role: "assistant", content: given.text });
    }
    return [...list, { role: "user", content: turns.at(-1).question }];
}

function wordsOf(problem) {
    if (!(problem instanceof Problem)) {
        console.error(problem);
        return "This page made a mistake; reload it and try again.";
    }
    if (isFull(problem)) {
        return sentTurns().length
            ? `${problem.message} Leave out the oldest turns, or begin a new chat.`
            : `${problem.message} Shorten your message.`;
    }
    return problem.retryAfter
        ? `${problem.message} Retry after ${problem.retryAfter} s.`
        : problem.message;
}

function askForKey(what, goOn) {
    onceKeyed.set(what, goOn);
    const dialog = $("ask-key");
    const form = dialog.querySelector("form");
    $("key-problem").textContent = hasGivenKey
        ? "The server does not take that key."
        : "The server answers only those who have a key.";
    form.onsubmit = () => {
        hasGivenKey = true;
        saveKey(form.elements.key.value);
        form.reset();
        const all = [...onceKeyed.values()];
        onceKeyed.clear();
        for (const each of all) each();
    };
    dialog.oncancel = () => void onceKeyed.delete("answer");
    if (!dialog.open) dialog.showModal();
}

function addTurn(question, given) {
    const turn = { question, answer: given, isLeftOut: false, before: null };
    turn.view = new TurnView($("turns"), turn);
    turns.push(turn);
    return turn;
}

function startAnew() {
    if (!turns.length) return $("question").focus();
    running?.abort();
    forgotten = turns.splice(0);
    for (const turn of forgotten) turn.view.remove();
    leaveEditing();
    save();
    showState();
    tell("New chat.");
    $("undo").hidden = false;
    $("question").focus();
}

// Brings back what a new chat took away; possible until its first message is sent.
function undo() {
    for (const turn of forgotten) {
        turn.view.restore($("turns"));
        Object.assign(turn, standing(turn));
        turn.answer.end ??= "stopped";
        turn.view.show(turn.answer, turn.answer.end);
        turns.push(turn);
    }
    forget();
    save();
    showState();
    tell("");
    scrollTo(0, document.body.scrollHeight);
    $("question").focus();
}

function forget() {
    forgotten = [];
    $("undo").hidden = true;
}

function edit(question = turns.at(-1).question) {
    if (!isEditing) draft = $("question").value;
    isEditing = true;
    keepTheEnd(() => ($("editing").hidden = false));
    $("question").value = question;
    fit();
    $("question").focus();
}

function leaveEditing() {
    if (isEditing) $("question").value = draft;
    isEditing = false;
    $("editing").hidden = true;
    fit();
}

function save() {
    saveTurns(turns.map((turn) => ({ ...standing(turn), isLeftOut: turn.isLeftOut })));
}

// A turn's question and answer, until something comes of those that are to replace them.
function standing({ question, answer: given, before }) {
    return before && isEmpty(given) ? before : { question, answer: given };
}

function showState() {
    $("welcome").hidden = turns.length > 0;
    $("send").hidden = running !== null;
    $("stop").hidden = running === null;
    document.body.classList.toggle("running", running !== null);
}

function tell(words) {
    $("status").textContent = words;
}

// Does what changes the page's height, and stays at its end if that is where the person is.
function keepTheEnd(change) {
    const isAtEnd = distanceToEnd() < NEAR_THE_END;
    change();
    if (isAtEnd) scrollTo(0, document.body.scrollHeight);
    showWayDown();
}

function distanceToEnd() {
    return document.documentElement.scrollHeight - innerHeight - scrollY;
}

function showWayDown() {
    $("latest").hidden = distanceToEnd() < NEAR_THE_END;
}

function onceAFrame(work) {
    let isWaiting = false;
    return () => {
        if (isWaiting) return;
        isWaiting = true;
        requestAnimationFrame(() => {
            isWaiting = false;
            work();
        });
    };
}

function send() {
    const question = $("question").value.trim();
    if (!question || running) return;
    $("question").value = "";
    fit();
    ask(question);
}

// As high as its text, up to what the style allows.
function fit() {
    const field = $("question");
    keepTheEnd(() => {
        field.style.height = "auto";
        field.style.height = `${field.scrollHeight}px`;
    });
}

// Over plain HTTP a page has no clipboard, but may copy a selection.
function copySelected(text) {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const isDone = document.execCommand("copy");
    field.remove();
    return isDone;
}

async function copy(button, text) {
    const isDone = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    button.textContent = (isDone ?? copySelected(text)) ? "Copied" : "Not allowed";
    setTimeout(() => (button.textContent = "Copy"), 1500);
}

const ACTS = {
    retry,
    edit: () => edit(),
    "leave-out": () => {
        settings.trims = true;
        if (isEditing) send();
        else retry();
    },
    copy: (button) => {
        const root = button.closest(".turn");
        copy(button, standing(turns.find((turn) => turn.view.root === root)).answer.text);
    },
    "copy-code": (button) => copy(button, button.closest(".code").querySelector("code").textContent),
};

function listen() {
    $("composer").addEventListener("submit", (event) => {
        event.preventDefault();
        send();
    });
    $("question").addEventListener("input", fit);
    $("question").addEventListener("keydown", (event) => {
        // On a touch screen no other key begins a line.
        if (event.key !== "Enter" || event.shiftKey || matchMedia("(pointer: coarse)").matches) return;
        if (event.isComposing || event.keyCode === 229) return; // so Safari marks a word's end
        event.preventDefault();
        send();
    });
    document.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
        if (running) running.abort();
        else leaveEditing();
    });
    $("turns").addEventListener("click", ({ target }) => ACTS[target.dataset.do]?.(target));
    $("stop").addEventListener("click", ({ detail }) => {
        if (detail < 2) running?.abort(); // a second click was meant for Send, which stood here
    });
    $("new").addEventListener("click", startAnew);
    $("undo").addEventListener("click", undo);
    $("open-settings").addEventListener("click", () => settings.open());
    $("leave-editing").addEventListener("click", leaveEditing);
    $("latest").addEventListener("click", () => scrollTo(0, document.body.scrollHeight));
    addEventListener("scroll", showWayDown, { passive: true });
    addEventListener("pagehide", () => {
        running?.abort();
        save();
    });
}

begin();
