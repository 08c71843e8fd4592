// SPDX-License-Identifier: Apache-2.0
//
// What all layers of fovea.nn share: a model, calls of which one runs at a time and without the
// GIL, inputs kept for backward, results copied into arrays of NumPy. A new layer is one
// add_layer() and its forward and backward (layers.cc has examples).

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "fovea/nn/buffer.h"
#include "fovea/nn/model.h"
#include "fovea/tensor.h"

#include "arrays/arrays.h"
#include "nn/types.h"

namespace fovea::python {

/// A call on what keeps its results in memory of its own, so that only one runs at a time. Throws
/// RuntimeError where another thread has one.
class Call {
 public:
  explicit Call(std::atomic_flag& in_use);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { in_use_.clear(); }

  /// work(), without the GIL and on as many threads as set_threads() said.
  template <class Work>
  auto run(const Work& work) const {
    const nanobind::gil_scoped_release released;
    const Threads threads;
    return work();
  }

 private:
  class Threads {
   public:
    Threads();
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    ~Threads();

   private:
    int before_;
  };

  std::atomic_flag& in_use_;
};

/// nn::Model, and for how long layers, optimisers and arrays need it.
class Model {
 public:
  Model(std::uint64_t seed, DType dtype) : shared_(std::make_shared<Shared>(seed, dtype)) {}

  nn::Model& model() const { return shared_->model; }
  nn::Parameters& parameters() const { return shared_->model.parameters(); }
  std::atomic_flag& in_use() const { return shared_->in_use; }

 private:
  struct Shared {
    Shared(std::uint64_t seed, DType dtype) : model(seed, dtype) {}
    nn::Model model;
    std::atomic_flag in_use;
  };
  std::shared_ptr<Shared> shared_;
};

/// A model, and where in its names a layer is put.
struct Place {
  Model model;
  std::string name;
};

/// Of the keywords that all layers have: the model that is given, or a new one.
Place place_of(const Model* model, const std::string& name, std::optional<std::int64_t> seed,
               const std::optional<DTypeWord>& dtype);
DType dtype_of(const DTypeWord& word);

/// An argument, and what messages call it.
struct Input {
  GivenArray given;
  const char* name;
};

/// Row after row without gaps, copied where it is not.
class ContiguousArray {
 public:
  explicit ContiguousArray(const Input& input);
  TensorView view() const { return copy_.defined() ? copy_.view() : array_.view(); }

 private:
  Array array_;
  Tensor copy_;
};

/// A view of the dictionary that nobody can put other arrays in.
NumpyArrays read_only(const nanobind::dict& arrays);
/// One for each of the batch, or none for None.
std::vector<std::int64_t> lengths_or_none(const std::optional<GivenIntegers>& lengths,
                                          const char* name);
NumpyArray numpy_array(const TensorView& result);
std::pair<NumpyArray, NumpyArray> numpy_array(const std::pair<TensorView, TensorView>& results);

/// Of three the last may be absent.
using ThreeArrays = std::tuple<NumpyArray, NumpyArray, std::optional<NumpyArray>>;
ThreeArrays numpy_array(const std::tuple<TensorView, TensorView, TensorView>& results);

/// A layer as Python has it: a model, whose only layer it may be.
class Layer : public Model {
 public:
  explicit Layer(const Place& place) : Model(place.model) {}

  static constexpr std::size_t kMaxInputs = 3;
  using Inputs = std::array<MutableTensorView, kMaxInputs>;

  /// work(inputs), of copies that stay until the next forward: the caller may change the arrays.
  /// An input that is None is absent. `whole` says whether backward may follow.
  template <class Work>
  NumpyArray forward(std::initializer_list<Input> given, const Work& work, bool whole = true) {
    const Call call(in_use());
    has_forward_ = has_whole_forward_ = false;
    const Inputs inputs = keep(given);
    const NumpyArray result = numpy_array(call.run([&] { return TensorView(work(inputs)); }));
    has_forward_ = true;
    has_whole_forward_ = whole;
    return result;
  }

  /// work(grad_y): one gradient, or a pair or tuple of them, or none.
  template <class Work>
  auto backward(const GivenArray& grad_y, const Work& work, const char* name = "grad_y") {
    const Call call(in_use());
    if (!has_whole_forward_) refuse("backward");
    const ContiguousArray grad({grad_y, name});
    const auto run = [&] { return work(grad.view()); };
    if constexpr (std::is_void_v<decltype(run())>) {
      call.run(run);
    } else {
      return numpy_array(call.run(run));
    }
  }

  /// work(), which looks at what the last forward left.
  template <class Work>
  NumpyArray look(const char* name, const Work& work) {
    const Call call(in_use());
    if (!has_forward_) refuse(name);
    return numpy_array(call.run(work));
  }

  /// Zeros for the gradient of an input, of its shape.
  MutableTensorView zeros_like(const MutableTensorView& input);

 protected:
  /// The inputs of the last forward; absent ones are not defined.
  Inputs inputs_;

 private:
  Inputs keep(std::initializer_list<Input> given);
  [[noreturn]] static void refuse(const char* name);

  std::array<nn::Buffer, kMaxInputs> kept_;
  nn::Buffer grad_input_;
  bool has_forward_ = false, has_whole_forward_ = false;
};

/// The layer that it is.
template <class T>
class LayerOf : public Layer {
 public:
  template <class Make>
  LayerOf(const Place& place, const Make& make)
      : Layer(place), layer(make(place.model.model().scope(place.name))) {}

  const Inputs& inputs() const { return inputs_; }

  T layer;
};

/// The class of a layer that make(scope, own...) makes, of its arguments in Python and the keywords
/// that all layers have.
template <class T, class... Own, class... Arguments>
auto add_layer(nanobind::module_& module, const char* name, const char* doc,
               T (*make)(const nn::Scope&, Own...), const Arguments&... arguments) {
  using nanobind::arg;
  return nanobind::class_<LayerOf<T>, Layer>(module, name, doc)
      .def(
          "__init__",
          [make](LayerOf<T>* self, Own... own, const Model* model, const std::string& prefix,
                 std::optional<std::int64_t> seed, const std::optional<DTypeWord>& dtype) {
            new (self) LayerOf<T>(place_of(model, prefix, seed, dtype),
                                  [&](const nn::Scope& scope) { return make(scope, own...); });
          },
          arguments..., arg("model").none() = nanobind::none(), arg("name") = "",
          arg("seed") = nanobind::none(), arg("dtype") = nanobind::none());
}

/// forward(x) and backward(grad_y).
template <class T, class Class>
void add_steps(Class& layer, const char* forward_doc, const char* backward_doc) {
  layer
      .def(
          "forward",
          [](LayerOf<T>& self, const GivenArray& x) {
            return self.forward({{x, "x"}},
                                [&](const auto& in) { return self.layer.forward(in[0]); });
          },
          nanobind::arg("x"), forward_doc)
      .def(
          "backward",
          [](LayerOf<T>& self, const GivenArray& grad_y) {
            return self.backward(
                grad_y, [&](const auto& grad) { return TensorView(self.layer.backward(grad)); });
          },
          nanobind::arg("grad_y"), backward_doc);
}

// The rooms of the module.
void add_model(nanobind::module_& module);
void add_layers(nanobind::module_& module);
void add_transformer(nanobind::module_& module);
void add_recurrent(nanobind::module_& module);
void add_training(nanobind::module_& module);

}  // namespace fovea::python
