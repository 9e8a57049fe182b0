// Serves a plan by HTTP: POST /OUTPUT computes that output, and GET / lists inputs and outputs.
// Try:
//   belfry checkpoint export RUN mnist.plan --format=plan && serve mnist.plan
//   curl localhost:8080/logits -d '{"image": {"shape": [1,28,28,1], "data": [0, 0.5, ...]}}'
#include <httplib.h>

#include "belfry/belfry.h"
using namespace belfry;

struct ServeFlags {
  std::string help, plan, host = "127.0.0.1";
  int port = 8080;
};

void answer(httplib::Response& response, const std::function<JsonValue()>& result) try {
  response.set_content(result().str() + "\n", "application/json");
} catch (const Error& error) {
  response.status = dynamic_cast<const NotFoundError*>(&error) ? 404 : 400;
  response.set_content(JsonValue::object().set("error", error.what()).str() + "\n",
                       "application/json");
}

int serve(const ServeFlags& flags) {
  Predictor predict = Predictor::open(flags.plan);
  httplib::Server server;                                // each request on a thread
  server.set_payload_max_length(std::size_t{16} << 20);  // JSON takes many times that in memory
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) {
    answer(response, [&] { return description_of(predict); });
  });
  // Reads the body itself: `curl -d` calls it a form, of which httplib would take 8 KiB.
  server.Post("/([^/]+)", [&](const httplib::Request& request, httplib::Response& response,
                              const httplib::ContentReader& read) {
    std::string body;
    if (!read([&](const char* data, std::size_t size) { return body.append(data, size), true; }))
      return;  // too long: httplib has answered
    answer(response,
           [&] { return predict_json(predict, request.matches[1].str(), JsonValue::parse(body)); });
  });
  const bool any = flags.port == 0;
  const int port = any ? server.bind_to_any_port(flags.host) : flags.port;
  if (port < 0 || (!any && !server.bind_to_port(flags.host, port)))
    throw Error("cannot listen at " + flags.host + ":" + std::to_string(flags.port));
  std::printf("serving %s at http://%s:%d\n", flags.plan.c_str(), flags.host.c_str(), port);
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
}

ServeFlags parse(std::span<const char* const> arguments, const std::string& program) {
  ServeFlags flags;
  FlagParser parser("Serves a plan by HTTP.", program);
  parser.add_argument("PLAN", flags.plan, "of `belfry checkpoint export RUN PLAN --format=plan`",
                      FlagParser::Needed::kYes);
  parser.add("--host", flags.host, "NAME", "the address to listen at [127.0.0.1]");
  parser.add("--port", flags.port, 0, 65535, "N", "0: any that is free [8080]");
  flags.help = parser.parse(arguments);
  return flags;
}

int main(int argc, char** argv) { return run_program(argc, argv, parse, serve); }
