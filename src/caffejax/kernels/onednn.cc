// oneDNN's convolutions and matrix products as foreign functions of XLA's.
//
// Arrays of data have their channels last: (batch, *space, channels). Weights are in Caffe's order: (outputs, inputs
// per group, *kernel). oneDNN wants weights in an order of its own: they are rearranged on the way, each time.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using dnnl::memory;
using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Array>;
using Numbers = ffi::Span<const int64_t>;
using Dims = memory::dims;
using Key = std::vector<int64_t>;

enum class Kind { kOutput, kInputDiff, kWeightDiff };

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

dnnl::primitive_attr Attributes(bool relu) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (relu) {
    dnnl::post_ops after;
    after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  return attributes;
}

memory::desc Plain(const Dims& dims, const Dims& strides) {
  return memory::desc(dims, memory::data_type::f32, strides);
}

// (batch, *space, channels) as it lies in memory, by the order of axes that oneDNN counts in.
memory::desc Data(Numbers shape) {
  size_t n = shape.size();
  Dims dims(n), strides(n);
  int64_t stride = 1;
  for (size_t i = n; i-- > 0;) {
    size_t axis = i == 0 ? 0 : i == n - 1 ? 1 : i + 1;
    dims[axis] = shape[i];
    strides[axis] = stride;
    stride *= shape[i];
  }
  return Plain(dims, strides);
}

memory::desc Weight(Numbers shape, int64_t groups) {
  Dims dims(shape.begin(), shape.end());
  if (groups > 1) {
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
  }
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return Plain(dims, strides);
}

memory::desc AnyOrder(const memory::desc& like) {
  return memory::desc(like.get_dims(), memory::data_type::f32, memory::format_tag::any);
}

// A primitive with the order it wants its weight in, and what rearranges that.
struct Prepared {
  dnnl::primitive primitive;
  memory::desc weight, own_weight, scratchpad;
  std::optional<dnnl::reorder> rearrange;
};

template <typename Description>
std::shared_ptr<Prepared> Prepare(const Description& pd, const memory::desc& weight, const memory::desc& own, bool back) {
  auto made = std::make_shared<Prepared>();
  made->primitive = dnnl::primitive(pd.get());
  made->weight = weight;
  made->own_weight = own;
  made->scratchpad = pd.scratchpad_desc();
  if (own != weight) {
    auto& e = Engine();
    made->rearrange.emplace(back ? dnnl::reorder::primitive_desc(e, own, e, weight)
                                 : dnnl::reorder::primitive_desc(e, weight, e, own));
  }
  return made;
}

// What was prepared for a key before, or is now: making a primitive compiles its code.
template <typename Make>
std::shared_ptr<Prepared> Kept(const Key& key, Make make) {
  static std::mutex mutex;
  static auto& all = *new std::map<Key, std::shared_ptr<Prepared>>();
  std::lock_guard<std::mutex> lock(mutex);
  auto& found = all[key];
  if (!found) found = make();
  return found;
}

struct Windows {
  Numbers stride, dilation, low, high;
  int64_t groups;
};

std::shared_ptr<Prepared> Convolution(Kind kind, Numbers x, Numbers weight, Numbers y, bool bias, bool relu,
                                      const Windows& w) {
  Key key{static_cast<int64_t>(kind), bias, relu, w.groups};
  for (Numbers part : {x, weight, y, w.stride, w.dilation, w.low, w.high}) key.insert(key.end(), part.begin(), part.end());
  return Kept(key, [&] {
    auto dims = [](Numbers numbers) { return Dims(numbers.begin(), numbers.end()); };
    Dims dilation = dims(w.dilation);
    for (auto& d : dilation) --d;  // oneDNN counts the cells between
    auto src = Data(x), dst = Data(y), plain = Weight(weight, w.groups), any = AnyOrder(plain);
    auto b = bias ? memory::desc({dst.get_dims()[1]}, memory::data_type::f32, memory::format_tag::a) : memory::desc();
    auto direct = dnnl::algorithm::convolution_direct;
    auto& e = Engine();
    auto forward = dnnl::convolution_forward::primitive_desc(
        e, kind == Kind::kOutput ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, direct, src,
        any, b, dst, dims(w.stride), dilation, dims(w.low), dims(w.high), Attributes(relu));
    if (kind == Kind::kOutput) return Prepare(forward, plain, forward.weights_desc(), false);
    if (kind == Kind::kInputDiff) {
      auto pd = dnnl::convolution_backward_data::primitive_desc(e, direct, src, any, dst, dims(w.stride), dilation,
                                                                dims(w.low), dims(w.high), forward, Attributes(false));
      return Prepare(pd, plain, pd.weights_desc(), false);
    }
    auto pd = dnnl::convolution_backward_weights::primitive_desc(e, direct, src, any, b, dst, dims(w.stride), dilation,
                                                                 dims(w.low), dims(w.high), forward, Attributes(false));
    return Prepare(pd, plain, pd.diff_weights_desc(), true);
  });
}

// Memory for the length of one call; XLA's CPU runtime has none to lend.
class Space {
 public:
  memory Of(const memory::desc& desc) {
    constexpr size_t kAlignment = 64;
    size_t size = (desc.get_size() + kAlignment - 1) / kAlignment * kAlignment;
    void* block = size ? std::aligned_alloc(kAlignment, size) : nullptr;
    if (size && !block) throw dnnl::error(dnnl_out_of_memory, "no memory for its work");
    blocks_.emplace_back(block);
    return memory(desc, Engine(), block);
  }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

memory Of(const memory::desc& desc, const void* data) { return memory(desc, Engine(), const_cast<void*>(data)); }

memory::desc Row(int64_t n) { return memory::desc({n}, memory::data_type::f32, memory::format_tag::a); }

// Runs what takes a weight: `arguments` are all others.
void RunOn(const Prepared& p, const void* weight, std::unordered_map<int, memory> arguments) {
  Space space;
  memory given = Of(p.weight, weight), own = given;
  if (p.rearrange) {
    own = space.Of(p.own_weight);
    p.rearrange->execute(Stream(), given, own);
  }
  arguments.emplace(DNNL_ARG_WEIGHTS, own);
  arguments.emplace(DNNL_ARG_SCRATCHPAD, space.Of(p.scratchpad));
  p.primitive.execute(Stream(), arguments);
  Stream().wait();
}

template <typename Body>
ffi::Error Guarded(Body body) {
  try {
    body();
    return ffi::Error::Success();
  } catch (const dnnl::error& error) {
    return ffi::Error::Internal(std::string("oneDNN: ") + error.what());
  }
}

ffi::Error Output(Array x, Array weight, ffi::RemainingArgs bias, Result y, bool relu,
                  Numbers stride, Numbers dilation, Numbers low, Numbers high, int64_t groups) {
  return Guarded([&] {
    bool biased = bias.size() > 0;
    auto p = Convolution(Kind::kOutput, x.dimensions(), weight.dimensions(), y->dimensions(), biased, relu,
                         {stride, dilation, low, high, groups});
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, Of(Data(x.dimensions()), x.untyped_data())},
                                              {DNNL_ARG_DST, Of(Data(y->dimensions()), y->untyped_data())}};
    if (biased) arguments.emplace(DNNL_ARG_BIAS, Of(Row(y->dimensions().back()), bias.get<Array>(0)->untyped_data()));
    RunOn(*p, weight.untyped_data(), arguments);
  });
}

ffi::Error InputDiff(Array dy, Array weight, Result dx, Numbers stride, Numbers dilation,
                     Numbers low, Numbers high, int64_t groups) {
  return Guarded([&] {
    auto p = Convolution(Kind::kInputDiff, dx->dimensions(), weight.dimensions(), dy.dimensions(), false, false,
                         {stride, dilation, low, high, groups});
    RunOn(*p, weight.untyped_data(),
          {{DNNL_ARG_DIFF_DST, Of(Data(dy.dimensions()), dy.untyped_data())},
           {DNNL_ARG_DIFF_SRC, Of(Data(dx->dimensions()), dx->untyped_data())}});
  });
}

ffi::Error WeightDiff(Array x, Array dy, Result d_weight, ffi::RemainingRets d_bias,
                      Numbers stride, Numbers dilation, Numbers low, Numbers high, int64_t groups) {
  return Guarded([&] {
    Space space;
    bool biased = d_bias.size() > 0;
    auto p = Convolution(Kind::kWeightDiff, x.dimensions(), d_weight->dimensions(), dy.dimensions(), biased, false,
                         {stride, dilation, low, high, groups});
    memory result = Of(p->weight, d_weight->untyped_data());
    memory own = p->rearrange ? space.Of(p->own_weight) : result;
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, Of(Data(x.dimensions()), x.untyped_data())},
                                              {DNNL_ARG_DIFF_DST, Of(Data(dy.dimensions()), dy.untyped_data())},
                                              {DNNL_ARG_DIFF_WEIGHTS, own},
                                              {DNNL_ARG_SCRATCHPAD, space.Of(p->scratchpad)}};
    if (biased) {
      auto row = Of(Row(dy.dimensions().back()), (*d_bias.get<Array>(0))->untyped_data());
      arguments.emplace(DNNL_ARG_DIFF_BIAS, row);
    }
    p->primitive.execute(Stream(), arguments);
    if (p->rearrange) p->rearrange->execute(Stream(), own, result);
    Stream().wait();
  });
}

// Both in one call; see `Wanted` in onednn.py.
ffi::Error ConvolutionDiffs(Array x, Array dy, Array weight, Result dx, Result d_weight, ffi::RemainingRets d_bias,
                            Numbers stride, Numbers dilation, Numbers low, Numbers high, int64_t groups) {
  auto error = InputDiff(dy, weight, dx, stride, dilation, low, high, groups);
  return error.failure() ? error : WeightDiff(x, dy, d_weight, d_bias, stride, dilation, low, high, groups);
}

// (m, k) times (k, n), of which each may lie in memory as its transpose.
void Multiply(Array a, Array b, const void* bias, Result c, bool transpose_a, bool transpose_b, bool relu) {
  int64_t m = c->dimensions()[0], n = c->dimensions()[1], k = a.dimensions()[transpose_a ? 0 : 1];
  auto left = Plain({m, k}, transpose_a ? Dims{1, m} : Dims{k, 1}), result = Plain({m, n}, {n, 1});
  auto row = bias ? Plain({1, n}, {n, 1}) : memory::desc();
  auto p = Kept({-1, m, n, k, transpose_a, transpose_b, bias != nullptr, relu}, [&] {
    auto right = Plain({k, n}, transpose_b ? Dims{1, k} : Dims{n, 1});
    dnnl::matmul::primitive_desc pd(Engine(), left, right, row, result, Attributes(relu));
    return Prepare(pd, right, right, false);
  });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, Of(left, a.untyped_data())},
                                            {DNNL_ARG_DST, Of(result, c->untyped_data())}};
  if (bias) arguments.emplace(DNNL_ARG_BIAS, Of(row, bias));
  RunOn(*p, b.untyped_data(), arguments);
}

ffi::Error Matmul(Array a, Array b, ffi::RemainingArgs bias, Result c, bool transpose_a, bool transpose_b, bool relu) {
  return Guarded([&] {
    const void* row = bias.size() > 0 ? bias.get<Array>(0)->untyped_data() : nullptr;
    Multiply(a, b, row, c, transpose_a, transpose_b, relu);
  });
}

// Of rows times a weight, (outputs, inputs) or, if `transpose`, (inputs, outputs); in one call as a convolution's.
ffi::Error MatmulDiffs(Array x, Array dy, Array weight, Result dx, Result d_weight, bool transpose) {
  return Guarded([&] {
    Multiply(dy, weight, nullptr, dx, false, transpose, false);
    Multiply(transpose ? x : dy, transpose ? dy : x, nullptr, d_weight, true, false, false);
  });
}

template <typename Binding>
auto WithWindows(Binding&& binding) {
  return std::move(binding)
      .template Attr<Numbers>("stride")
      .template Attr<Numbers>("dilation")
      .template Attr<Numbers>("low")
      .template Attr<Numbers>("high")
      .template Attr<int64_t>("groups");
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_convolution, Output,
    WithWindows(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().RemainingArgs().Ret<Array>().Attr<bool>("relu")));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_input_diff, InputDiff, WithWindows(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_weight_diff, WeightDiff,
                              WithWindows(ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Ret<Array>().RemainingRets()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_convolution_diffs, ConvolutionDiffs,
                              WithWindows(ffi::Ffi::Bind()
                                              .Arg<Array>()
                                              .Arg<Array>()
                                              .Arg<Array>()
                                              .Ret<Array>()
                                              .Ret<Array>()
                                              .RemainingRets()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_matmul_diffs, MatmulDiffs,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .Ret<Array>()
                                  .Ret<Array>()
                                  .Attr<bool>("transpose"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_matmul, Matmul,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()
                                  .Arg<Array>()
                                  .RemainingArgs()
                                  .Ret<Array>()
                                  .Attr<bool>("transpose_a")
                                  .Attr<bool>("transpose_b")
                                  .Attr<bool>("relu"));
