#include "belfry/ops/kernels/onednn.h"

#if BELFRY_ONEDNN
#include <mutex>
#include <set>

#include "belfry/framework/error.h"
#include "belfry/framework/log.h"
#include "belfry/framework/node.h"

// Of libgomp, which oneDNN links. Both concern the calling thread alone.
extern "C" int omp_get_max_threads(void);
extern "C" void omp_set_num_threads(int);

namespace belfry {
namespace {

thread_local int calls = 0;

}  // namespace

bool inside_onednn() { return calls > 0; }

OneDnnCall::OneDnnCall() {
  ++calls;
  threads_ = omp_get_max_threads();
  omp_set_num_threads(1);
}

OneDnnCall::~OneDnnCall() {
  omp_set_num_threads(threads_);
  --calls;
}

namespace onednn {

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc dense(dnnl::memory::dims dims, dnnl::memory::format_tag tag) {
  return {std::move(dims), dnnl::memory::data_type::f32, tag};
}

void report(const KernelPlan& plan, const dnnl::primitive_desc_base& chosen) {
  const std::string_view implementation = chosen.impl_info_str();
  const bool reference = implementation.starts_with("ref");
  if (!reference && !log_enabled(LogLevel::kDebug)) return;
  std::string types;
  for (std::size_t i = 0; i < plan.inputs(); ++i) types += cat(i ? ", " : "", plan.input(i));
  log_debug(plan.node().describe(), ": ", types, " -> ", plan.output(), " by oneDNN's ",
            implementation);
  if (!reference) return;
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::string key = cat(plan.node().type(), "(", types, ")");
  const std::lock_guard lock(mutex);
  if (warned.insert(key).second)
    log_warning(key, ": oneDNN has only slow reference code for these shapes (", implementation,
                "); see ", plan.node().describe());
}

void fail(const KernelPlan& plan, const dnnl::error& error) {
  throw Internal(cat(plan.node().describe(), ": oneDNN refuses it (", error.what(),
                     "); report this, and set SessionOptions::reference_kernels meanwhile"));
}

Primitive::Primitive(const dnnl::primitive& primitive, const dnnl::primitive_desc_base& description,
                     std::initializer_list<int> arguments)
    : primitive_(primitive) {
  for (const int name : arguments)
    arguments_.emplace(name, dnnl::memory(description.query_md(dnnl::query::exec_arg_md, name),
                                          engine(), nullptr));
  const dnnl::memory::desc scratchpad = description.scratchpad_desc();
  scratch_bytes_ = round_to_64(scratchpad.get_size());
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad, engine(), nullptr));
}

void Primitive::run(std::initializer_list<Argument> arguments, std::byte* scratch) {
  OneDnnCall call;
  try {
    for (const Argument& argument : arguments)
      arguments_.find(argument.name)->second.set_data_handle(const_cast<void*>(argument.data));
    arguments_.find(DNNL_ARG_SCRATCHPAD)->second.set_data_handle(scratch);
    primitive_.execute(stream(), arguments_);
    stream().wait();
  } catch (const dnnl::error& error) {
    throw DeviceError(cat("oneDNN failed: ", error.what()));
  }
}

Primitive reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc description(engine(), from, engine(), to, user_scratchpad());
  return {dnnl::reorder(description), description, {DNNL_ARG_FROM, DNNL_ARG_TO}};
}

}  // namespace onednn
}  // namespace belfry

#else
namespace belfry {

bool inside_onednn() { return false; }

}  // namespace belfry
#endif
