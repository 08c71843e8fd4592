// SPDX-License-Identifier: Apache-2.0
//
// Common code of all layers of fovea.nn: the model, one call at a time without the GIL, inputs
// kept for backward, results copied into NumPy arrays. To add a layer, call add_layer() and define
// its forward and backward (examples in layers.cc).

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stop_token>
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
#include "fovea/nn/stop.h"
#include "fovea/tensor.h"

#include "arrays/arrays.h"
#include "arrays/calls.h"
#include "nn/types.h"

namespace fovea::python {

/// A call on an object. Only one runs at a time, because the object owns the result buffers. Throws
/// RuntimeError if another thread is inside a call.
class Call {
 public:
  explicit Call(std::atomic_flag& in_use);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { in_use_.clear(); }

  /// Runs work() without the GIL, on the thread count set by set_threads().
  template <class Work>
  auto run(const Work& work) const {
    const nanobind::gil_scoped_release released;
    const Threads threads;
    return work();
  }

  /// Same as run() for the pass of a layer, which Ctrl-C ends early unless it has few `elements`
  /// to work on.
  template <class Work>
  auto run_pass(std::int64_t elements, const Work& work) const {
    // A pass on fewer elements takes less than a second even in large models. Watching would take
    // twice the time of a small layer.
    constexpr std::int64_t kWorthWatching = 4096;
    if (elements < kWorthWatching) return run(work);
    using Result = decltype(work());
    std::conditional_t<std::is_void_v<Result>, int, Result> result{};
    run_stoppable([&](const std::stop_token& stop) {
      const nn::StopScope scope(stop);
      const Threads threads;
      if constexpr (std::is_void_v<Result>) {
        work();
      } else {
        result = work();
      }
    });
    if constexpr (!std::is_void_v<Result>) return result;
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

/// nn::Model, shared by its layers, optimisers and arrays, which keep it alive.
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

/// A model, and the name prefix of a layer's parameters in it.
struct Place {
  Model model;
  std::string name;
};

/// Returns the place described by the keywords common to all layers. It is in `model`, or in a new
/// model if `model` is null.
Place place_of(const Model* model, const std::string& name, std::optional<std::int64_t> seed,
               const std::optional<DTypeWord>& dtype);
DType dtype_of(const DTypeWord& word);

/// An argument, and its name in error messages.
struct Input {
  GivenArray given;
  const char* name;
};

/// A contiguous array; copied if the argument is not contiguous.
class ContiguousArray {
 public:
  explicit ContiguousArray(const Input& input);
  TensorView view() const { return copy_.defined() ? copy_.view() : array_.view(); }

 private:
  Array array_;
  Tensor copy_;
};

/// Returns a read-only view of the dictionary; its arrays stay writable.
NumpyArrays read_only(const nanobind::dict& arrays);
/// Returns one length per batch item; empty for None.
std::vector<std::int64_t> lengths_or_none(const std::optional<GivenIntegers>& lengths,
                                          const char* name);
NumpyArray numpy_array(const TensorView& result);
std::pair<NumpyArray, NumpyArray> numpy_array(const std::pair<TensorView, TensorView>& results);

/// Three results, of which the last is optional.
using ThreeArrays = std::tuple<NumpyArray, NumpyArray, std::optional<NumpyArray>>;
ThreeArrays numpy_array(const std::tuple<TensorView, TensorView, TensorView>& results);

/// A layer in Python. It is also a Model: a shared one, or one that only this layer uses.
class Layer : public Model {
 public:
  explicit Layer(const Place& place) : Model(place.model) {}

  static constexpr std::size_t kMaxInputs = 3;
  using Inputs = std::array<MutableTensorView, kMaxInputs>;

  /// The functions that may be called after forward(): backward() and look(), only look(), or
  /// neither.
  enum class Next : std::uint8_t { kBackward, kLook, kNone };

  /// Runs work(inputs) on copies that live until the next forward, so that the caller may change
  /// the arrays. A None argument becomes an undefined input.
  template <class Work>
  NumpyArray forward(std::initializer_list<Input> given, const Work& work,
                     Next next = Next::kBackward) {
    const Call call(in_use());
    next_ = Next::kNone;
    const Inputs inputs = keep(given);
    const NumpyArray result =
        numpy_array(call.run_pass(elements_of(inputs), [&] { return TensorView(work(inputs)); }));
    next_ = next;
    return result;
  }

  /// Runs work(grad_y), which returns one gradient, a pair or tuple of gradients, or void.
  template <class Work>
  auto backward(const GivenArray& grad_y, const Work& work, const char* name = "grad_y") {
    const Call call(in_use());
    if (next_ != Next::kBackward) refuse("backward");
    const ContiguousArray grad({grad_y, name});
    const auto run = [&] { return work(grad.view()); };
    if constexpr (std::is_void_v<decltype(run())>) {
      call.run_pass(grad.view().size(), run);
    } else {
      return numpy_array(call.run_pass(grad.view().size(), run));
    }
  }

  /// Runs work(), which reads the state of the last forward.
  template <class Work>
  NumpyArray look(const char* name, const Work& work) {
    const Call call(in_use());
    if (next_ == Next::kNone) refuse(name);
    return numpy_array(call.run_pass(elements_of(inputs_), work));
  }

  /// Returns a zero gradient with the shape of `input`.
  MutableTensorView zeros_like(const MutableTensorView& input);

 protected:
  /// The inputs of the last forward; absent inputs are undefined views.
  Inputs inputs_;

 private:
  Inputs keep(std::initializer_list<Input> given);
  static std::int64_t elements_of(const Inputs& inputs);
  [[noreturn]] static void refuse(const char* name);

  std::array<nn::Buffer, kMaxInputs> kept_;
  nn::Buffer grad_input_;
  Next next_ = Next::kNone;
};

/// A Layer with its nn layer of type T.
template <class T>
class LayerOf : public Layer {
 public:
  template <class Make>
  LayerOf(const Place& place, const Make& make) : Layer(place), layer(built(place, make)) {}

  const Inputs& inputs() const { return inputs_; }

  T layer;

 private:
  template <class Make>
  static T built(const Place& place, const Make& make) {
    const Call call(place.model.in_use());
    nn::Model& model = place.model.model();
    return model.build([&] { return make(model.scope(place.name)); });
  }
};

/// Adds the Python class of a layer constructed by make(scope, own...). Its parameters are
/// `arguments` and the keywords common to all layers.
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

/// Adds the methods forward(x) and backward(grad_y).
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

// Each function adds one part of the module fovea._nn.
void add_model(nanobind::module_& module);
void add_layers(nanobind::module_& module);
void add_transformer(nanobind::module_& module);
void add_recurrent(nanobind::module_& module);
void add_training(nanobind::module_& module);

}  // namespace fovea::python
