#include "belfry/ops/kernels/onednn.h"

#if BELFRY_ONEDNN
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

// Functions of libgomp, which oneDNN links. Both affect only the calling thread.
extern "C" int omp_get_max_threads(void);
extern "C" void omp_set_num_threads(int);

namespace belfry {
namespace {

thread_local int calls = 0;

}  // namespace

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return cat(version->major, ".", version->minor, ".", version->patch);
}

std::string onednn_instructions() {
  const auto taken = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa set) {
    const auto bits = static_cast<unsigned>(set);
    return (taken & bits) == bits;
  };
  const char* const set = has(dnnl::cpu_isa::avx512_core) ? "AVX-512"
                          : has(dnnl::cpu_isa::avx2)      ? "AVX2"
                          : has(dnnl::cpu_isa::avx)       ? "AVX"
                                                          : "SSE4.1";
  const bool shorter = dnnl::get_cpu_isa_hints() == dnnl::cpu_isa_hints::prefer_ymm;
  return cat(set, shorter ? " in 256 bits" : "");
}

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
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
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
  const std::string key = cat(plan.op().name, "(", types, ")");
  if (first_time_logged(cat("slow by oneDNN: ", key)))
    log_warning(key, ": oneDNN has only slow reference code for these shapes (", implementation,
                "); see ", plan.node().describe());
}

namespace {

// Whether `bytes` can be mapped, written to and made executable.
bool has_room(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  const bool executable = ::mprotect(memory, bytes, PROT_READ | PROT_EXEC) == 0;
  ::munmap(memory, bytes);
  return executable;
}

}  // namespace

void check_room(const KernelPlan& plan) {
  if (!has_room(kCodeRoom)) lack_memory(plan);
}

void make_code_of_products() {
  static const dnnl_status_t made = [] {  // tries once per process
    constexpr int kSize = 16;
    const std::vector<float> a(kSize * kSize), b(kSize * kSize);
    std::vector<float> c(kSize * kSize);
    return dnnl_sgemm('N', 'N', kSize, kSize, kSize, 1.0f, a.data(), kSize, b.data(), kSize, 0.0f,
                      c.data(), kSize);
  }();
  dnnl::error::wrap_c_api(made, "it could not make the code of products of matrices");
}

void lack_memory(const KernelPlan& plan) {
  throw OutOfMemory(
      cat(plan.node().describe(), ": there is no room for its code, which oneDNN makes: ",
          kCodeRoom >> 20, " MiB of memory that can be made executable; allow this ",
          "process more memory (ulimit -v), or use fewer shards or devices, or a smaller batch"));
}

void refuse(const KernelPlan& plan, const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory || !has_room(kCodeRoom)) lack_memory(plan);
  throw InternalError(cat(plan.node().describe(), ": oneDNN refuses it (", error.what(),
                          "); report this, and set SessionOptions::reference_kernels meanwhile"));
}

void check_run(dnnl_status_t status, const std::string& node) {
  if (status == dnnl_success) [[likely]]
    return;
  require<OutOfMemory>(status != dnnl_out_of_memory, node,
                       ": oneDNN has no memory left for what it needs while it runs; use a smaller "
                       "batch, or allow this process more memory (ulimit -v)");
  throw DeviceError(cat(node, ": oneDNN failed with status ", static_cast<int>(status)));
}

// The arguments of one run of a primitive.
struct Primitive::Arguments {
  std::vector<dnnl::memory> memories;  // as in run(), then the scratch memory
  std::vector<dnnl_exec_arg_t> list;
  Arguments* next = nullptr;  // the next spare set
};

// The sets of arguments that no run is using.
class Primitive::Spare {
 public:
  Spare(const dnnl::primitive_desc_base& description, std::initializer_list<int> names) {
    for (const int name : names)
      types_.emplace_back(name, description.query_md(dnnl::query::exec_arg_md, name));
    types_.emplace_back(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  Arguments& take() {
    const std::lock_guard lock(mutex_);
    if (!first_) return make();
    return *std::exchange(first_, first_->next);
  }
  void give_back(Arguments& arguments) {
    const std::lock_guard lock(mutex_);
    arguments.next = std::exchange(first_, &arguments);
  }

 private:
  Arguments& make() {
    auto made = std::make_unique<Arguments>();
    for (const auto& [name, type] : types_) {
      made->memories.emplace_back(type, engine(), nullptr);
      made->list.push_back({name, made->memories.back().get()});
    }
    return *all_.emplace_back(std::move(made));
  }

  std::mutex mutex_;
  std::vector<std::pair<int, dnnl::memory::desc>> types_;
  std::vector<std::unique_ptr<Arguments>> all_;
  Arguments* first_ = nullptr;
};

class Primitive::Taken {
 public:
  explicit Taken(Spare& spare) : spare_(spare), arguments_(spare.take()) {}
  ~Taken() { spare_.give_back(arguments_); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  const Arguments* operator->() const { return &arguments_; }

 private:
  Spare& spare_;
  Arguments& arguments_;
};

Primitive::Primitive(std::string node, const dnnl::primitive& primitive,
                     const dnnl::primitive_desc_base& description,
                     std::initializer_list<int> arguments)
    : node_(std::move(node)),
      primitive_(primitive),
      scratch_bytes_(round_to_64(description.scratchpad_desc().get_size())),
      spare_(std::make_shared<Spare>(description, arguments)) {
  const Taken first(*spare_);
  if (std::string_view(description.impl_info_str()).find("gemm") != std::string_view::npos)
    make_code_of_products();
}

void Primitive::run(std::initializer_list<Argument> arguments, std::byte* scratch) const {
  const OneDnnCall call;
  try {
    const Taken taken(*spare_);
    const auto set = [&](std::size_t i, const void* data) {
      check_run(dnnl_memory_set_data_handle(taken->list[i].memory, const_cast<void*>(data)), node_);
    };
    std::size_t count = 0;
    for (const Argument& argument : arguments) set(count++, argument.data);
    set(count++, scratch);
    check_run(dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(count),
                                     taken->list.data()),
              node_);
  } catch (const dnnl::error& error) {  // a thread's first run makes objects, too
    check_run(error.status, node_);
  }
}

Primitive reorder(const std::string& node, const dnnl::memory::desc& from,
                  const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc description(engine(), from, engine(), to, user_scratchpad());
  return {node, dnnl::reorder(description), description, {DNNL_ARG_FROM, DNNL_ARG_TO}};
}

}  // namespace onednn
}  // namespace belfry

#else
namespace belfry {

std::string onednn_version() { return ""; }

std::string onednn_instructions() { return ""; }

bool inside_onednn() { return false; }

}  // namespace belfry
#endif
