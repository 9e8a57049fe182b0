#include "belfry/ops/convolution/conv2d_impl.h"
#include "belfry/ops/kernels/onednn.h"
#include "belfry/ops/kernels/onednn_gemm.h"

#if BELFRY_ONEDNN
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"

namespace belfry::kernels {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using onednn::Primitive;

// Descriptions of a convolution's tensors, in oneDNN's order of dimensions: NCHW, OIHW or GOIHW.
struct Descriptions {
  algorithm by;
  memory::desc x, y, filter;                    // as the library is asked for
  memory::desc plain_x, plain_y, plain_filter;  // ours
  memory::dims strides, between_taps, before, after;

  Descriptions(const ConvShape& s, algorithm chosen) : by(chosen) {
    const FilterAxis &v = s.vertical, &h = s.horizontal;
    using tag = memory::format_tag;
    memory::dims filter_dims{s.group_out(), s.group_in(), v.taps, h.taps};
    if (s.groups > 1) filter_dims.insert(filter_dims.begin(), s.groups);
    const memory::dims x_dims{s.images, s.in, v.in, h.in}, y_dims{s.images, s.out, v.out, h.out};
    const tag images = by == algorithm::convolution_winograd ? tag::any : tag::nhwc;
    x = onednn::dense(x_dims, images);
    y = onednn::dense(y_dims, images);
    filter = onednn::dense(filter_dims, tag::any);
    plain_x = onednn::dense(x_dims, tag::nhwc);
    plain_y = onednn::dense(y_dims, tag::nhwc);
    plain_filter = onednn::dense(filter_dims, s.groups > 1 ? tag::gohwi : tag::ohwi);
    strides = {v.stride, h.stride};
    between_taps = {v.dilation - 1, h.dilation - 1};  // pixels between taps: oneDNN's dilation
    before = {v.before, h.before};
    after = {v.after, h.after};
  }
};

// These descriptions depend on the version of the library. They are empty if it lacks the
// algorithm, as it lacks Winograd's without AVX-512.
dnnl::convolution_forward::primitive_desc describe_forward(const Descriptions& d) {
  return {{dnnl::prop_kind::forward_training, d.by, d.x, d.filter, d.y, d.strides, d.between_taps,
           d.before, d.after},
          onednn::user_scratchpad(),
          onednn::engine(),
          d.by == algorithm::convolution_winograd};
}

dnnl::convolution_backward_data::primitive_desc describe_grad_input(const Descriptions& d) {
  const auto forward = describe_forward(d);
  if (!forward) return {};
  return {{d.by, d.x, d.filter, d.y, d.strides, d.between_taps, d.before, d.after},
          onednn::user_scratchpad(),
          onednn::engine(),
          forward,
          d.by == algorithm::convolution_winograd};
}

dnnl::convolution_backward_weights::primitive_desc describe_grad_filter(const Descriptions& d) {
  const auto forward = describe_forward(d);
  if (!forward) return {};
  return {{d.by, d.x, d.filter, d.y, d.strides, d.between_taps, d.before, d.after},
          onednn::user_scratchpad(),
          onednn::engine(),
          forward,
          d.by == algorithm::convolution_winograd};
}

// Whether Winograd's algorithm computes the gradients of a convolution: 4 x 4 pixels under 3 x 3
// taps by 36 products instead of 144. It first transforms the filter and all images, which pays
// from some tiles on. It takes 7 MiB or more of workspace, which small calls are not worth. The
// forward pass stays direct: larger rounding errors would move more values to the other side of
// ReLU (docs/performance.md).
bool suits_winograd(const ConvShape& s) {
  constexpr std::int64_t kTile = 4, kLeastTiles = 32, kLeastChannels = 16,
                         kLeastProducts = std::int64_t{64} << 20;
  const auto suits = [](const FilterAxis& axis) {
    return axis.taps == 3 && axis.stride == 1 && axis.dilation == 1 &&
           axis.before == axis.after &&  // else oneDNN 2.6 computes wrong gradients
           axis.before <= 1;
  };
  const auto tiles = [](const FilterAxis& axis) { return (axis.out + kTile - 1) / kTile; };
  const FilterAxis &v = s.vertical, &h = s.horizontal;
  return s.groups == 1 && suits(v) && suits(h) && s.in >= kLeastChannels &&
         s.out >= kLeastChannels && s.images * tiles(v) * tiles(h) >= kLeastTiles &&
         s.images * v.out * h.out * s.out * s.filter_size() >= kLeastProducts;
}

template <class Described>
struct Choice {
  Descriptions tensors;
  Described chosen;
};

template <class Described>
Choice<Described> choose(const ConvShape& s, Described (&describe)(const Descriptions&)) {
  if (suits_winograd(s)) {
    const Descriptions tensors(s, algorithm::convolution_winograd);
    if (Described found = describe(tensors)) return {tensors, found};
  }
  const Descriptions tensors(s, algorithm::convolution_direct);
  return {tensors, describe(tensors)};
}

// A tensor of a convolution, and the copy from or to the layout that oneDNN chose, if that is not
// ours. The copy lies in the workspace.
struct Operand {
  int name;  // DNNL_ARG_...
  memory::desc plain;
  std::optional<Primitive> copy = {};
  std::int64_t offset = 0;

  std::byte* copied(std::byte* workspace) const { return workspace + offset; }
};

// A convolution of two tensors. The workspace holds copies of them, then scratch memory.
class Convolution {
 public:
  template <class Described>
  Convolution(KernelPlan& plan, const dnnl::primitive& primitive, const Described& chosen,
              Operand first, Operand second, Operand out)
      : main_(plan.node().describe(), primitive, chosen, {first.name, second.name, out.name}),
        first_(std::move(first)),
        second_(std::move(second)),
        out_(std::move(out)) {
    onednn::report(plan, chosen);
    std::int64_t scratch = main_.scratch_bytes();
    for (Operand* operand : {&first_, &second_, &out_}) {
      const memory::desc wanted = chosen.query_md(dnnl::query::exec_arg_md, operand->name);
      const bool packed = operand == &second_ && plan.input(1).shape.rank() == 1;
      if (wanted == operand->plain || packed) continue;
      const auto& [from, to] =
          operand == &out_ ? std::pair(wanted, operand->plain) : std::pair(operand->plain, wanted);
      operand->copy = onednn::reorder(plan.node().describe(), from, to);
      operand->offset = copied_bytes_;
      copied_bytes_ += onednn::round_to_64(wanted.get_size());
      scratch = std::max(scratch, operand->copy->scratch_bytes());
    }
    plan.workspace(copied_bytes_ + scratch);
  }

  void run(const float* first, const float* second, float* out, std::byte* workspace) const {
    std::byte* const scratch = workspace + copied_bytes_;
    const auto read = [&](const Operand& operand, const float* data) -> const void* {
      if (!operand.copy) return data;
      std::byte* const copied = operand.copied(workspace);
      operand.copy->run({{DNNL_ARG_FROM, data}, {DNNL_ARG_TO, copied}}, scratch);
      return copied;
    };
    const void* const made = out_.copy ? static_cast<void*>(out_.copied(workspace)) : out;
    main_.run({{first_.name, read(first_, first)},
               {second_.name, read(second_, second)},
               {out_.name, made}},
              scratch);
    if (out_.copy) out_.copy->run({{DNNL_ARG_FROM, made}, {DNNL_ARG_TO, out}}, scratch);
  }

 private:
  Primitive main_;
  Operand first_, second_, out_;
  std::int64_t copied_bytes_ = 0;
};

ConvRun run_of(std::shared_ptr<const Convolution> conv) {
  return [=](const float* first, const float* second, float* out, std::byte* workspace) {
    conv->run(first, second, out, workspace);
  };
}

// Every field of a description that says where an element is.
std::string layout_of(const memory::desc& description) {
  const dnnl_memory_desc_t& d = description.data;
  const dnnl_blocking_desc_t& blocking = d.format_desc.blocking;
  std::string text = cat(d.offset0, ";");
  for (int i = 0; i < d.ndims; ++i)
    text += cat(d.dims[i], ",", d.padded_dims[i], ",", blocking.strides[i], ";");
  for (int i = 0; i < blocking.inner_nblks; ++i)
    text += cat(blocking.inner_idxs[i], "x", blocking.inner_blks[i], ";");
  return text;
}

std::shared_ptr<const PackedForm> form_of(const KernelPlan& plan, const memory::desc& plain,
                                          const memory::desc& chosen) {
  if (chosen == plain || chosen.data.format_kind != dnnl_blocked) return nullptr;
  const Primitive copy = onednn::reorder(plan.node().describe(), plain, chosen);
  if (copy.scratch_bytes() > 0) return nullptr;
  return std::make_shared<const PackedForm>(PackedForm{
      .layout = layout_of(chosen),
      .bytes = onednn::round_to_64(chosen.get_size()),
      .pack = [copy](const KernelPointers& p) {
        copy.run({{DNNL_ARG_FROM, p.input<float>(0)}, {DNNL_ARG_TO, p.output<float>()}}, nullptr);
      }});
}

// Whether products of matrices, with a row per pixel, compute the gradients of a convolution. With
// AVX-512 and 1 x 1 filters, the gradient of the filter then takes 0.77 of the time, because no
// layout is copied; the gradient of the input takes 0.92. With AVX2 both take longer.
bool grads_are_products(const ConvShape& s) {
  const auto is_point = [](const FilterAxis& axis) {
    return axis.taps == 1 && axis.stride == 1 && axis.before == 0 && axis.after == 0;
  };
  if (s.groups > 1 || !is_point(s.vertical) || !is_point(s.horizontal)) return false;
  constexpr auto kAvx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kAvx512) == kAvx512;
}

std::int64_t pixels_of(const ConvShape& s) { return s.images * s.vertical.in * s.horizontal.in; }

}  // namespace

ConvRun onednn_conv2d(KernelPlan& plan, const ConvShape& shape) {
  return onednn::guarded(plan, [&] {
    const Descriptions d(shape, algorithm::convolution_direct);
    const auto chosen = describe_forward(d);
    return run_of(std::make_shared<const Convolution>(
        plan, dnnl::convolution_forward(chosen), chosen, Operand{DNNL_ARG_SRC, d.plain_x},
        Operand{DNNL_ARG_WEIGHTS, d.plain_filter}, Operand{DNNL_ARG_DST, d.plain_y}));
  });
}

ConvRun onednn_conv2d_grad_input(KernelPlan& plan, const ConvShape& shape) {
  if (grads_are_products(shape)) {
    const GemmShape product{.m = pixels_of(shape),
                            .n = shape.in,
                            .k = shape.out,
                            .row_a = shape.out,
                            .row_b = shape.in};
    return [gemm = OneDnnGemm(plan, product)](const float* dy, const float* filter, float* dx,
                                              std::byte* workspace) {
      gemm.run(dy, filter, dx, workspace);
    };
  }
  return onednn::guarded(plan, [&] {
    const auto [d, chosen] = choose(shape, describe_grad_input);
    return run_of(std::make_shared<const Convolution>(plan, dnnl::convolution_backward_data(chosen),
                                                      chosen, Operand{DNNL_ARG_DIFF_DST, d.plain_y},
                                                      Operand{DNNL_ARG_WEIGHTS, d.plain_filter},
                                                      Operand{DNNL_ARG_DIFF_SRC, d.plain_x}));
  });
}

std::shared_ptr<const PackedForm> onednn_conv2d_form(const KernelPlan& plan,
                                                     const ConvShape& shape) {
  return onednn::guarded(plan, [&] {
    const Descriptions d(shape, algorithm::convolution_direct);
    return form_of(plan, d.plain_filter, describe_forward(d).weights_desc());
  });
}

std::shared_ptr<const PackedForm> onednn_conv2d_grad_input_form(const KernelPlan& plan,
                                                                const ConvShape& shape) {
  if (grads_are_products(shape)) return nullptr;
  return onednn::guarded(plan, [&] {
    const auto [d, chosen] = choose(shape, describe_grad_input);
    return form_of(plan, d.plain_filter, chosen.weights_desc());
  });
}

ConvRun onednn_conv2d_grad_filter(KernelPlan& plan, const ConvShape& shape) {
  if (grads_are_products(shape)) {
    const GemmShape product{.m = shape.out,
                            .n = shape.in,
                            .k = pixels_of(shape),
                            .transpose_a = true,
                            .row_a = shape.out,
                            .row_b = shape.in};
    return [gemm = OneDnnGemm(plan, product)](const float* x, const float* dy, float* filter,
                                              std::byte* workspace) {
      gemm.run(dy, x, filter, workspace);
    };
  }
  return onednn::guarded(plan, [&] {
    const auto [d, chosen] = choose(shape, describe_grad_filter);
    return run_of(std::make_shared<const Convolution>(
        plan, dnnl::convolution_backward_weights(chosen), chosen, Operand{DNNL_ARG_SRC, d.plain_x},
        Operand{DNNL_ARG_DIFF_DST, d.plain_y}, Operand{DNNL_ARG_DIFF_WEIGHTS, d.plain_filter}));
  });
}

}  // namespace belfry::kernels
#endif
