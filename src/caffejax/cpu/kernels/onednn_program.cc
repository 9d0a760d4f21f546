// Frozen nets: functions that build a program (program.h), pack its weights and run it. Python calls them by ctypes on
// arrays in memory. This needs no compilation, which takes `jax.jit` 20 ms for each new shape. Code that XLA has
// compiled calls them as foreign functions.

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nms.h"
#include "onednn_errors.h"
#include "program_run.h"

#include "xla/ffi/api/ffi.h"

namespace caffejax {
namespace {

namespace ffi = xla::ffi;
using Text = std::string_view;  // a program, see program.h

// The state of an XLA executable, which is its program.
struct State {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit State(Text program) : frozen(std::string(program)) {}
  Frozen frozen;
};

ffi::TypeId State::id = {};
ffi::TypeInfo State::info = ffi::MakeTypeInfo<State>();

ffi::ErrorOr<std::unique_ptr<State>> Make(Text program, int64_t layouts_hash, int64_t) {
  std::unique_ptr<State> state;
  ffi::Error error = Guarded("frozen net", [&] {
    state = std::make_unique<State>(program);
    Require(state->frozen.steps.LayoutsHash() == layouts_hash,
            "the weights were packed for another number of threads, or another program");
  });
  if (error.failure()) return ffi::Unexpected(error);
  return ffi::ErrorOr<std::unique_ptr<State>>(std::move(state));
}

// Returns whether a shape is `dims` with the first axis `times` as long.
bool Is(Numbers shape, const Dims& dims, int64_t times) {
  if (shape.size() != dims.size()) return false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (shape[axis] != (axis ? dims[axis] : dims[0] * times)) return false;
  }
  return true;
}

// Runs a program on each of `times` consecutive parts of its arguments and results.
void RunTimes(Frozen& frozen, std::vector<char*> from, std::vector<char*> to, const std::vector<char*>& packed,
              int64_t times) {
  const Program& program = frozen.program;
  for (int64_t k = 0; k < times; ++k) {
    frozen.Run(from, to, packed);
    for (size_t i = 0; i < from.size(); ++i) from[i] += Bytes(program.arguments[i]);
    for (size_t i = 0; i < to.size(); ++i) to[i] += Bytes(program.Shape(program.results[i]));
  }
}

// Takes the packed weights, then the arguments. The first axes of arguments and results are `times` as long as in the
// program.
ffi::Error RunFrozen(State* state, ffi::RemainingArgs arguments, ffi::RemainingRets results, Text, int64_t,
                     int64_t times) {
  return Guarded("frozen net", [&] {
    Frozen& frozen = state->frozen;
    const Program& program = frozen.program;
    const std::vector<Packed>& weights = frozen.steps.packed;
    Require(arguments.size() == weights.size() + program.arguments.size() && results.size() == program.results.size() &&
                times > 0,
            "another number of packed weights, arguments or results than the program's");
    std::vector<char*> packed, from, to;
    for (size_t i = 0; i < weights.size(); ++i) {
      auto array = arguments.get<ffi::AnyBuffer>(i);
      Require(array.has_value() && array->size_bytes() == weights[i].layout.get_size(), "packed weight ", i,
              " is of another size");
      packed.push_back(static_cast<char*>(array->untyped_data()));
    }
    for (size_t i = 0; i < program.arguments.size(); ++i) {
      auto array = arguments.get<Array>(weights.size() + i);
      Require(array.has_value() && Is(array->dimensions(), program.arguments[i], times), "argument ", i,
              " is of another shape");
      from.push_back(static_cast<char*>(array->untyped_data()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      auto array = results.get<Array>(i);
      Require(array.has_value() && Is((*array)->dimensions(), program.Shape(program.results[i]), times), "result ", i,
              " is of another shape");
      to.push_back(static_cast<char*>((*array)->untyped_data()));
    }
    RunTimes(frozen, from, to, packed, times);
  });
}

// The memory of NumPy arrays. Python's lock must be held when arrays are added and when the object ends.
class NumpyArrays {
 public:
  NumpyArrays() = default;
  ~NumpyArrays() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  NumpyArrays(const NumpyArrays&) = delete;
  NumpyArrays& operator=(const NumpyArrays&) = delete;

  // Adds a tuple of float32 arrays in C order, of these shapes with first axes `times` as long.
  void Add(const char* role, PyObject* arrays, const std::vector<Dims>& shapes, int64_t times, bool writable) {
    Require(times > 0 && PyTuple_Check(arrays) && PyTuple_Size(arrays) == static_cast<Py_ssize_t>(shapes.size()),
            "the program takes ", shapes.size(), " ", role, "s");
    for (size_t i = 0; i < shapes.size(); ++i) {
      Py_buffer view;
      int flags = PyBUF_ND | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
      bool is_in_order = !PyObject_GetBuffer(PyTuple_GetItem(arrays, i), &view, flags);
      if (is_in_order) views_.push_back(view);
      else PyErr_Clear();
      if (is_in_order && !std::strcmp(view.format, "f") && Is({view.shape, size_t(view.ndim)}, shapes[i], times))
        continue;
      std::string expected;
      for (size_t axis = 0; axis < shapes[i].size(); ++axis) {
        expected += (axis ? " x " : "") + std::to_string(axis ? shapes[i][axis] : shapes[i][0] * times);
      }
      Require(false, role, " ", i, " must be float32 in C order, of shape ", expected);
    }
  }

  std::vector<char*> Addresses() const {
    std::vector<char*> addresses;
    for (const Py_buffer& view : views_) addresses.push_back(static_cast<char*>(view.buf));
    return addresses;
  }

 private:
  std::vector<Py_buffer> views_;
};

// Lets other threads of Python run during the lifetime of the object.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Facts about a built program. The caller must copy the texts before it opens the next program.
struct ProgramInfo {
  int64_t layouts_hash, workspace_bytes;
  const char* steps;    // names of the steps, one on each line; an error message if there is no program
  const char* packing;  // the packed weights, see `Packed::Describe`
};

// Calls a function; returns null, or its error message, which must be copied before the next call.
template <typename Body>
const char* ErrorMessageOf(const char* name, Body body) {
  thread_local std::string text;
  ffi::Error error = Guarded(name, body);
  if (error.success()) return nullptr;
  text = error.message();
  return text.c_str();
}

}  // namespace

// Builds a program; returns null on an error.
extern "C" void* caffejax_program_open(const char* program, ProgramInfo* info) {
  thread_local std::string steps, packing;
  steps.clear();
  packing.clear();
  std::unique_ptr<Frozen> frozen;
  const char* error = ErrorMessageOf("frozen net", [&] {
    frozen = std::make_unique<Frozen>(program);
    for (const Step& step : frozen->steps.steps) steps += step.name + "\n";
    packing = frozen->steps.Packing();
  });
  if (error) frozen.reset();
  *info = {0, 0, error ? error : steps.c_str(), packing.c_str()};
  if (frozen) {
    info->layouts_hash = frozen->steps.LayoutsHash();
    info->workspace_bytes = frozen->steps.arena_size;
  }
  return frozen.release();
}

extern "C" void caffejax_program_close(void* program) { delete static_cast<Frozen*>(program); }

// Returns the layout of packed weight `i`, which outlives the program.
extern "C" void* caffejax_program_layout(void* program, int64_t i) {
  return new Packed(static_cast<const Frozen*>(program)->steps.packed.at(i));
}

extern "C" void caffejax_program_drop_layout(void* layout) { delete static_cast<Packed*>(layout); }

extern "C" const char* caffejax_program_pack(void* layout, const float* weight, char* packed) {
  return ErrorMessageOf("packing weights", [&] { Pack(*static_cast<const Packed*>(layout), weight, packed); });
}

extern "C" const char* caffejax_program_unpack(void* layout, char* packed, float* weight) {
  return ErrorMessageOf("unpacking weights", [&] { Unpack(*static_cast<const Packed*>(layout), packed, weight); });
}

// Runs a program on tuples of arrays, whose first axes are `times` as long as in the program. The caller holds Python's
// lock.
extern "C" const char* caffejax_program_call(void* program, PyObject* arguments, PyObject* results, char** packed,
                                             int64_t times) {
  return ErrorMessageOf("frozen net", [&] {
    Frozen& frozen = *static_cast<Frozen*>(program);
    std::vector<Dims> shapes;
    for (int64_t result : frozen.program.results) shapes.push_back(frozen.program.Shape(result));
    NumpyArrays from, to;
    from.Add("argument", arguments, frozen.program.arguments, times, false);
    to.Add("result", results, shapes, times, true);
    Unlocked unlocked;
    RunTimes(frozen, from.Addresses(), to.Addresses(), {packed, packed + frozen.steps.packed.size()}, times);
  });
}

extern "C" int64_t caffejax_program_suppress(const Box* boxes, int64_t n, float threshold, float eta,
                                             int64_t* selected) {
  return Suppress(boxes, n, threshold, eta, selected);
}

extern "C" void* caffejax_program_type_id() { return &State::id; }
extern "C" void* caffejax_program_type_info() { return &State::info; }

// XLA passes all attributes of a call to each of its stages.
template <typename Binding>
auto WithAttributes(Binding&& binding) {
  return std::move(binding)
      .template Attr<Text>("program")
      .template Attr<int64_t>("layouts_hash")
      .template Attr<int64_t>("times");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(caffejax_program_make, Make, WithAttributes(ffi::Ffi::BindInstantiate()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    caffejax_program_run, RunFrozen,
    WithAttributes(ffi::Ffi::Bind().Ctx<ffi::State<State>>().RemainingArgs().RemainingRets()));

}  // namespace caffejax
