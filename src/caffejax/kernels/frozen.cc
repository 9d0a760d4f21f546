// Frozen nets as foreign functions of XLA's: a program's weights packed, and the program run. See frozen_program.h.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frozen_run.h"
#include "onednn_errors.h"

#include "xla/ffi/api/ffi.h"

namespace caffejax {
namespace {

namespace ffi = xla::ffi;
using Octets = ffi::Buffer<ffi::U8>;

// What an executable keeps of a program.
struct State {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit State(std::string_view text) : frozen(std::string(text)) {}
  Frozen frozen;
};

ffi::TypeId State::id = {};
ffi::TypeInfo State::info = ffi::MakeTypeInfo<State>();

ffi::ErrorOr<std::unique_ptr<State>> Make(std::string_view program, int64_t) {
  std::unique_ptr<State> made;
  ffi::Error error = Guarded("frozen net", [&] { made = std::make_unique<State>(program); });
  if (error.failure()) return ffi::Unexpected(error);
  return ffi::ErrorOr<std::unique_ptr<State>>(std::move(made));
}

bool Is(const Array& array, const Dims& dims, int64_t times) {
  Numbers shape = array.dimensions();
  if (shape.size() != dims.size()) return false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (shape[axis] != (axis ? dims[axis] : dims[0] * times)) return false;
  }
  return true;
}

// Packed weights, then arguments; along the first axis of all of them and of the results lie `times` of the program's.
ffi::Error RunFrozen(State* state, Octets packed, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                     std::string_view, int64_t times) {
  return Guarded("frozen net", [&] {
    Frozen& frozen = state->frozen;
    const Program& program = frozen.program;
    Require(packed.element_count() == frozen.steps.packed_size, "the packed weights are of another program");
    Require(arguments.size() == program.arguments.size() && results.size() == program.results.size() && times > 0,
            "another number of arguments or results than the program's");
    std::vector<char*> from, to;
    std::vector<size_t> from_step, to_step;
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto array = arguments.get<Array>(i);
      Require(array.has_value() && Is(*array, program.arguments[i], times), "argument ", i, " is of another shape");
      from.push_back(static_cast<char*>(array->untyped_data()));
      from_step.push_back(array->size_bytes() / times);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      auto array = results.get<Array>(i);
      Require(array.has_value() && Is(**array, program.Shape(program.results[i]), times), "result ", i,
              " is of another shape");
      to.push_back(static_cast<char*>((*array)->untyped_data()));
      to_step.push_back((*array)->size_bytes() / times);
    }
    for (int64_t k = 0; k < times; ++k) {
      frozen.Run(from, to, reinterpret_cast<char*>(packed.typed_data()));
      for (size_t i = 0; i < from.size(); ++i) from[i] += from_step[i];
      for (size_t i = 0; i < to.size(); ++i) to[i] += to_step[i];
    }
  });
}

ffi::Error PackWeights(State* state, ffi::RemainingArgs weights, ffi::Result<Octets> packed, std::string_view,
                       int64_t) {
  return Guarded("packing weights", [&] {
    const Frozen& frozen = state->frozen;
    Require(weights.size() == frozen.program.weights.size(), "another number of weights than the program's");
    Require(packed->element_count() == frozen.steps.packed_size, "the packed weights are of another size");
    std::vector<const float*> from;
    for (size_t i = 0; i < weights.size(); ++i) {
      auto array = weights.get<Array>(i);
      Require(array.has_value() && Is(*array, frozen.program.weights[i], 1), "weight ", i, " is of another shape");
      from.push_back(array->typed_data());
    }
    frozen.Pack(from, reinterpret_cast<char*>(packed->typed_data()));
  });
}

// What can be asked of a program before there is an executable. Texts are the caller's to copy before the next question.
struct Answer {
  int64_t packed_size, arena_size;
  const char* steps;    // their names, one on each line; or what is wrong, and sizes are then -1
  const char* packing;  // how the weights are packed: programs with the same can share them
};

}  // namespace

extern "C" Answer caffejax_frozen_ask(const char* program) {
  thread_local std::string steps, packing;
  steps.clear();
  packing.clear();
  Answer answer{-1, -1, nullptr, nullptr};
  ffi::Error error = Guarded("frozen net", [&] {
    Frozen frozen{std::string(program)};
    for (const Step& step : frozen.steps.steps) steps += step.name + "\n";
    packing = frozen.steps.Packing();
    answer.packed_size = frozen.steps.packed_size;
    answer.arena_size = frozen.steps.arena_size;
  });
  if (error.failure()) steps = error.message();
  answer.steps = steps.c_str();
  answer.packing = packing.c_str();
  return answer;
}

extern "C" void* caffejax_frozen_type_id() { return &State::id; }
extern "C" void* caffejax_frozen_type_info() { return &State::info; }

// Every stage of a call is given all of its attributes.
template <typename Binding>
auto WithAttributes(Binding&& binding) {
  return std::move(binding).template Attr<std::string_view>("program").template Attr<int64_t>("times");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_frozen_make, Make, WithAttributes(ffi::Ffi::BindInstantiate()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_frozen_run, RunFrozen,
                              WithAttributes(ffi::Ffi::Bind()
                                                 .Ctx<ffi::State<State>>()
                                                 .Arg<Octets>()
                                                 .RemainingArgs()
                                                 .RemainingRets()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_frozen_pack, PackWeights,
    WithAttributes(ffi::Ffi::Bind().Ctx<ffi::State<State>>().RemainingArgs().Ret<Octets>()));

}  // namespace caffejax
