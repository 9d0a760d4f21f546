// Reads the program of a frozen net, an array of doubles that cpu/kernels/onednn_program.py encodes.
//
// A program consists of four counts (arguments, weights, operations, results); the shape of each argument and each
// weight, as its number of axes and its sizes; the operations; and for each result of the program, the number of its
// value. The values are the arguments and the results of the operations. They are numbered in this order, from 0.
//
// An operation is a statement, a count n, and n further statements, which are applied to its result. A statement is the
// number of a word, a count n, and n fields. A field is the number of its name, a count n, and n numbers.
//
// Values are float32, except if an operation has the field "type": 1 for bfloat16, 2 for int8, 3 for uint8. An
// operation computes in the type of its first input. Only "convert" may have an input whose type differs from its
// result's. An integer stands for the product of itself and a step. "scale" is the weight (1,) with the step of the
// result. "scales" is the weight with the step of the input: of shape (1,) for "convert"; of shape (outputs,) for
// operations with a weight of integers, where the steps of the weight are multiplied by the step of the input. A
// statement that adds an integer value has the step of that value as "a" and as the weight "scale".

#ifndef CAFFEJAX_KERNELS_PROGRAM_H_
#define CAFFEJAX_KERNELS_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_primitives.h"

namespace caffejax {

// Words of statements and names of fields, in the order of their numbers. Python reads both lists from here.
inline constexpr const char* kWords[] = {
    "apply", "concat",      "convert",   "convolution", "dense",    "deconvolution", "lrn",
    "max",   "mean",        "pad",       "padded_mean", "permute",  "reshape",       "shuffle",
    "slice", "softmax",  // operations; the words below are applied to results
    "plus",  "times",       "maximum",   "prelu",       "abs",      "clip",          "elu",
    "exp",   "hardsigmoid", "hardswish", "linear",      "logistic", "relu",          "softplus",
    "swish", "tanh",        "square",    "mish",        "log",      "power"};
inline constexpr const char* kFields[] = {"in",    "out",    "weight", "bias", "value", "stride", "dilation", "low",
                                          "high",  "kernel", "groups", "axis", "from",  "order",  "size",     "within",
                                          "alpha", "beta",   "k",      "a",    "b",     "type",   "scale",    "scales"};

inline Dims Integers(const std::string& name, const std::vector<double>& numbers) {
  Dims integers;
  for (double number : numbers) {
    Require(-kLargest <= number && number <= kLargest, name, " ", number, " is too large");
    integers.push_back(static_cast<int64_t>(number));
  }
  return integers;
}

class Statement {
 public:
  std::string name;
  std::map<std::string, std::vector<double>> fields;

  bool Has(const std::string& field) const { return fields.count(field) > 0; }

  const std::vector<double>& Values(const std::string& field) const {
    auto entry = fields.find(field);
    Require(entry != fields.end(), name, " has no ", field);
    return entry->second;
  }

  Dims IntegerList(const std::string& field) const { return Integers(name + ": " + field, Values(field)); }

  // `count` integers, each at least `least`.
  Dims IntegerList(const std::string& field, size_t count, int64_t least) const {
    Dims numbers = IntegerList(field);
    Require(numbers.size() == count, name, ": ", field, " has ", numbers.size(), " numbers, not ", count);
    for (int64_t number : numbers) Require(number >= least, name, ": ", field, " ", number, " is less than ", least);
    return numbers;
  }

  Type ResultType() const {
    static constexpr Type kTypes[] = {Type::f32, Type::bf16, Type::s8, Type::u8};
    int64_t type = Has("type") ? Integer("type") : 0;
    Require(0 <= type && type < 4, name, ": no type ", type);
    return kTypes[type];
  }

  int64_t Integer(const std::string& field) const { return IntegerList(field, 1, 0)[0]; }

  float Number(const std::string& field) const {
    Require(Values(field).size() == 1, name, " must have one ", field);
    return static_cast<float>(Values(field)[0]);
  }
};

struct Operation {
  Statement self;
  std::vector<Statement> after;

  Dims Out() const { return self.IntegerList("out"); }
};

struct Program {
  std::vector<Dims> arguments, weights;
  std::vector<Operation> operations;
  std::vector<int64_t> results;

  // The shape of a value: of an argument, or of an operation's result.
  Dims Shape(int64_t value) const {
    Require(0 <= value && value < Values(), "no value ", value);
    int64_t index = value - static_cast<int64_t>(arguments.size());
    return index < 0 ? arguments[value] : operations[index].Out();
  }

  const Dims& Weight(int64_t i) const {
    Require(0 <= i && i < static_cast<int64_t>(weights.size()), "no weight ", i);
    return weights[i];
  }

  int64_t Values() const { return static_cast<int64_t>(arguments.size() + operations.size()); }
};

class Reader {
 public:
  Reader(const double* numbers, size_t count) : at_(numbers), end_(numbers + count) {}

  // Reads a count of items that follow; each item takes at least one number.
  int64_t Count() {
    double count = Next();
    Require(0 <= count && count <= static_cast<double>(end_ - at_), "a program cannot have a count of ", count);
    return static_cast<int64_t>(count);
  }

  std::vector<double> List() {
    int64_t count = Count();
    at_ += count;
    return {at_ - count, at_};
  }

  Statement ReadStatement() {
    Statement statement;
    statement.name = Name(kWords);
    for (int64_t fields = Count(); fields > 0; --fields) {
      std::string field = Name(kFields);
      statement.fields[field] = List();
    }
    return statement;
  }

  double Next() {
    Require(at_ < end_, "a program ends before its last number");
    return *at_++;
  }

 private:
  template <size_t n>
  const char* Name(const char* const (&names)[n]) {
    double number = Next();
    Require(0 <= number && number < n, "no word or field has the number ", number);
    return names[static_cast<size_t>(number)];
  }

  const double *at_, *end_;
};

inline Program ReadProgram(const double* numbers, size_t count) {
  Program program;
  Reader reader(numbers, count);
  int64_t arguments = reader.Count(), weights = reader.Count(), operations = reader.Count(), results = reader.Count();
  for (; arguments > 0; --arguments) program.arguments.push_back(Integers("argument", reader.List()));
  for (; weights > 0; --weights) program.weights.push_back(Integers("weight", reader.List()));
  for (; operations > 0; --operations) {
    Operation operation{reader.ReadStatement(), {}};
    for (int64_t after = reader.Count(); after > 0; --after) operation.after.push_back(reader.ReadStatement());
    program.operations.push_back(operation);
  }
  for (; results > 0; --results) program.results.push_back(Integers("result", {reader.Next()})[0]);
  for (int64_t result : program.results) program.Shape(result);
  return program;
}

inline int64_t Bytes(const Dims& dims) {
  int64_t bytes = sizeof(float);
  for (int64_t n : dims) {
    Require(0 < n && n <= kLargest && !__builtin_mul_overflow(bytes, n, &bytes), "a shape is empty or too large");
  }
  return bytes;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PROGRAM_H_
