// Runs before the page is drawn, so that it does not flash in the other theme.
"use strict";
(() => {
  const theme = localStorage.getItem("locker-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
