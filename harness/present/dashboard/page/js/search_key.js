// The key / goes to the search of the view that is open, or else to the search of all views.
(function () {
  "use strict";
  document.addEventListener("keydown", function (event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    const field = document.querySelector("main input[type=search]") || document.querySelector(".everywhere input");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
})();
