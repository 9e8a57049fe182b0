// Serves a plan by HTTP: POST /OUTPUT computes that output, and GET / lists inputs and outputs.
// Try:
//   belfry checkpoint export RUN mnist.plan --format=plan && serve mnist.plan
//   curl localhost:8080/logits -d '{"image": {"shape": [1,28,28,1], "data": [0, 0.5, ...]}}'
#include <httplib.h>

#include "belfry/belfry.h"
using namespace belfry;

struct ServeFlags {
  std::string help, plan, host = "127.0.0.1", device = "/cpu:0";
  int port = 8080;
};

Tensor tensor_of(const JsonValue& json, DType dtype) {
  std::vector<std::int64_t> dims;
  for (const JsonValue& size : json.at("shape").items()) dims.push_back(size.integer());
  return visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values;
    for (const JsonValue& value : json.at("data").items()) {
      if constexpr (std::is_integral_v<T>) {
        const std::int64_t number = value.integer();
        if (static_cast<std::int64_t>(static_cast<T>(number)) != number)
          throw InvalidArgument(value.where() + "does not fit " + std::string(name_of(dtype)));
        values.push_back(static_cast<T>(number));
      } else {
        values.push_back(static_cast<T>(value.number()));
      }
    }
    return Tensor(Shape(dims), values);  // throws unless their number is that of the shape
  });
}

JsonValue json_of(const Tensor& tensor) {
  JsonValue data = JsonValue::array();
  visit_any(tensor.dtype(), [&](auto zero) {
    for (const auto value : tensor.data<decltype(zero)>()) data.push(value);
  });
  return JsonValue::object()
      .set("shape", JsonValue::array(tensor.shape().dims()))
      .set("data", std::move(data));
}

JsonValue answer(Predictor& predict, const std::string& output, const std::string& request) {
  const JsonValue fields = JsonValue::parse(request);
  std::map<std::string, Tensor> feeds;
  for (const PredictorInput& input : predict.inputs())
    if (const JsonValue* const field = fields.find(input.name))
      feeds.emplace(input.name, tensor_of(*field, *input.dtype));
  return json_of(predict(output, feeds));
}

JsonValue description(const Predictor& predict) {
  JsonValue inputs = JsonValue::object();
  for (const PredictorInput& input : predict.inputs()) inputs.set(input.name, input.shape.str());
  return JsonValue::object()
      .set("inputs", std::move(inputs))
      .set("outputs", JsonValue::array(predict.outputs()));
}

void respond(Predictor& predict, const std::string& output, const std::string& request,
             httplib::Response& response) try {
  const JsonValue result = answer(predict, output, request);
  response.set_content(result.str() + "\n", "application/json");
} catch (const Error& error) {
  response.status = dynamic_cast<const NotFoundError*>(&error) ? 404 : 400;
  response.set_content(JsonValue::object().set("error", error.what()).str() + "\n",
                       "application/json");
}

int serve(const ServeFlags& flags) {
  Predictor predict = Predictor::open(flags.plan, flags.device);
  httplib::Server server;                                // each request on a thread
  server.set_payload_max_length(std::size_t{16} << 20);  // JSON takes many times that in memory
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(description(predict).str() + "\n", "application/json");
  });
  // Reads the body itself: `curl -d` calls it a form, of which httplib would take 8 KiB.
  server.Post("/([^/]+)", [&](const httplib::Request& request, httplib::Response& response,
                              const httplib::ContentReader& read) {
    std::string body;
    if (read([&](const char* data, std::size_t bytes) { return body.append(data, bytes), true; }))
      respond(predict, request.matches[1], body, response);
  });
  const char* const host = flags.host.c_str();
  const int port = flags.port == 0                         ? server.bind_to_any_port(host)
                   : server.bind_to_port(host, flags.port) ? flags.port
                                                           : -1;
  if (port < 0) throw Error("cannot listen at " + flags.host + ":" + std::to_string(flags.port));
  std::printf("serving %s at http://%s:%d\n", flags.plan.c_str(), host, port);
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
}

int main(int argc, char** argv) {
  const auto parse = [](std::span<const char* const> arguments, const std::string& program) {
    ServeFlags flags;
    FlagParser parser("Serves a plan by HTTP.", program);
    parser.add_argument("PLAN", flags.plan, "of `belfry checkpoint export RUN PLAN --format=plan`",
                        FlagParser::Needed::kYes);
    parser.add("--host", flags.host, "NAME", "the address to listen at [127.0.0.1]");
    parser.add("--port", flags.port, 0, 65535, "N", "0: any that is free [8080]");
    parser.add("--device", flags.device, "NAME", "where it computes [/cpu:0]");
    flags.help = parser.parse(arguments);
    return flags;
  };
  return run_program(argc, argv, parse, serve);
}
