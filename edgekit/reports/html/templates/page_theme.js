"use strict";
// Before anything is drawn: the colours that the reader chose the last time.
document.documentElement.classList.add("scripted");
try {
  const theme = localStorage.getItem("edgekit-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* no storage for this page: as the system has it */ }
