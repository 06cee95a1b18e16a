SwaggerUIBundle({
  url: "openapi.json", dom_id: "#docs", deepLinking: true, persistAuthorization: false, validatorUrl: null,
  docExpansion: "list", tryItOutEnabled: true,
});
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
