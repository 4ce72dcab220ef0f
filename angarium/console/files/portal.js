// The page of a link that signs in: takes the token from the fragment into the form, and out of the address bar.
// Without this file people paste the link.
"use strict";

function takeToken() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  document.getElementById("token").value = token;
  document.getElementById("paste").hidden = true;
  document.querySelector("main button").focus();
}

addEventListener("hashchange", takeToken);
takeToken();
