/* global SwaggerUIBundle */
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["X-Fedbo"] = "1"; // so that the page's log-in counts here too
    return request;
  },
});
