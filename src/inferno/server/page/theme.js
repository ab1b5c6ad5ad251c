// Light or dark, before anything is drawn: as the system has it, until the button is pressed.

(() => {
    const NAME = "inferno.theme";
    let picked = null; // where a browser keeps nothing
    const system = matchMedia("(prefers-color-scheme: dark)");

    function chosen() {
        try {
            return localStorage.getItem(NAME);
        } catch {
            return picked;
        }
    }

    function choose(theme) {
        picked = theme;
        try {
            localStorage.setItem(NAME, theme);
        } catch {
            // then it holds until the page is left
        }
        show(theme);
    }

    function show(theme) {
        const name = theme ?? (system.matches ? "dark" : "light");
        document.documentElement.dataset.theme = name;
        document.getElementById("theme")?.setAttribute("aria-pressed", name === "dark");
    }

    show(chosen());
    system.addEventListener("change", () => show(chosen()));
    addEventListener("DOMContentLoaded", () => {
        show(chosen());
        document.getElementById("theme").addEventListener("click", () => {
            const isDark = document.documentElement.dataset.theme === "dark";
            choose(isDark ? "light" : "dark");
        });
    });
})();
