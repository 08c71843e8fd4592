// SPDX-License-Identifier: Apache-2.0
//
// Python classes of models and layers (layer.h).

#include "nn/layer.h"

#include <cstring>
#include <limits>
#include <stdexcept>

#include <omp.h>

#include "arrays/calls.h"
#include "arrays/new_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

std::atomic<int> most_threads{0};  // 0: OpenMP's default

std::size_t bytes_of(const TensorView& view) {
  return static_cast<std::size_t>(view.size()) * dtype_size(view.dtype());
}

/// Returns a dictionary from parameter name to a view of which(parameter).
template <class Which>
NumpyArrays views(nb::handle_t<Model> self, const Which& which) {
  const nb::dict arrays;
  for (nn::Parameter& parameter : nb::cast<Model&>(self).parameters()) {
    arrays[parameter.name.c_str()] = nb::steal(numpy_writable_view(which(parameter), self.ptr()));
  }
  return read_only(arrays);
}

void train(const Model& self, std::int64_t step) {
  if (step < 0 || step > std::numeric_limits<std::uint32_t>::max()) {
    raise_value_error("step: expected 0 to 2^32 - 1, got {}", step);
  }
  const Call call(self.in_use());
  self.model().train(static_cast<std::uint32_t>(step));
}

constexpr const char* kModelDoc =
    R"(State shared by the layers of one model: the parameters, the random stream that initialises them,
and whether dropout is on.

seed   0 to 2^32 - 1: the same seed and order of layers give the same initial parameters
dtype  "float32"; "float64" is slow and meant for comparison with finite differences

    model = fovea.nn.Model(seed=7)
    embedding = fovea.nn.Embedding(100, 64, model=model, name="embedding")
    output = fovea.nn.Linear(64, 100, model=model, name="output")

A layer created without model= has a model of its own. While one thread computes with a layer of a
model, calls from other threads raise RuntimeError.)";

constexpr const char* kLayerDoc =
    R"(Base class of all layers. A layer is a Model, either the one passed as model= or its own, and has

forward(x, ...)   returns the layer's result. Copies its arguments, which may be changed afterwards.
backward(grad_y)  after forward: adds to the gradients of the parameters, returns the gradient of x

Accepts NumPy and torch arrays and others with DLPack, of the model's dtype; returns new NumPy
arrays. Raises TypeError and ValueError; the message has the argument, the expected and the actual
value. Raises RuntimeError if backward is called without a preceding forward. Ctrl-C ends a long pass;
after one of backward, some gradients may have changed.)";

}  // namespace

Call::Call(std::atomic_flag& in_use) : in_use_(in_use) {
  if (in_use.test_and_set()) {
    throw std::runtime_error("fovea.nn: another thread is computing with this layer's model");
  }
}

Call::Threads::Threads() : before_(omp_get_max_threads()) {
  const int most = most_threads.load();
  if (most > 0) omp_set_num_threads(most);
}

Call::Threads::~Threads() { omp_set_num_threads(before_); }

DType dtype_of(const DTypeWord& word) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    if (dtype_name(dtype) == word.text) return dtype;
  }
  raise_value_error("dtype: expected \"float32\" or \"float64\", got \"{}\"", word.text);
}

Place place_of(const Model* model, const std::string& name, std::optional<std::int64_t> seed,
               const std::optional<DTypeWord>& dtype) {
  if (model != nullptr) {
    if (seed || dtype) {
      raise_value_error("{}: expected none beside model, which has its own",
                        seed ? "seed" : "dtype");
    }
    return {*model, name};
  }
  if (seed && *seed < 0) raise_value_error("seed: expected 0 to 2^32 - 1, got {}", *seed);
  return {Model(static_cast<std::uint64_t>(seed.value_or(0)),
                dtype ? dtype_of(*dtype) : DType::kFloat32),
          name};
}

ContiguousArray::ContiguousArray(const Input& input)
    : array_(input.given.object.ptr(), {.name = input.name, .contiguous_rows = true}) {
  const TensorView& view = array_.view();
  if (view.size() > 0 && view.strides() != contiguous_strides(view.shape())) copy_ = Tensor(view);
}

NumpyArrays read_only(const nb::dict& arrays) {
  nb::object proxy = nb::steal(PyDictProxy_New(arrays.ptr()));
  if (!proxy.is_valid()) nb::raise_python_error();
  return {std::move(proxy)};
}

std::vector<std::int64_t> lengths_or_none(const std::optional<GivenIntegers>& lengths,
                                          const char* name) {
  return lengths ? integers(lengths->object.ptr(), name) : std::vector<std::int64_t>();
}

NumpyArray numpy_array(const TensorView& result) { return {nb::steal(numpy_copy(result))}; }

std::pair<NumpyArray, NumpyArray> numpy_array(const std::pair<TensorView, TensorView>& results) {
  return {numpy_array(results.first), numpy_array(results.second)};
}

ThreeArrays numpy_array(const std::tuple<TensorView, TensorView, TensorView>& results) {
  const auto& [first, second, third] = results;
  return {numpy_array(first), numpy_array(second),
          third.defined() ? std::optional(numpy_array(third)) : std::nullopt};
}

Layer::Inputs Layer::keep(std::initializer_list<Input> given) {
  inputs_ = {};
  std::size_t number = 0;
  for (const Input& input : given) {
    const std::size_t at = number++;
    if (input.given.object.is_none()) continue;
    const ContiguousArray array(input);
    const TensorView from = array.view();
    inputs_[at] = kept_[at].of(from.dtype(), from.shape());
    if (from.size() > 0) std::memcpy(inputs_[at].data(), from.data(), bytes_of(from));
  }
  return inputs_;
}

std::int64_t Layer::elements_of(const Inputs& inputs) {
  std::int64_t count = 0;
  for (const MutableTensorView& input : inputs) count += input.defined() ? input.size() : 0;
  return count;
}

MutableTensorView Layer::zeros_like(const MutableTensorView& input) {
  const MutableTensorView zeros = grad_input_.of(input.dtype(), input.shape());
  if (zeros.size() > 0) std::memset(zeros.data(), 0, bytes_of(zeros));
  return zeros;
}

void Layer::refuse(const char* name) {
  throw std::runtime_error(fmt::format("{}: expected a forward before it", name));
}

void add_model(nb::module_& module) {
  nb::class_<Model>(module, "Model", kModelDoc)
      .def(
          "__init__",
          [](Model* self, std::int64_t seed, const DTypeWord& dtype) {
            new (self) Model(place_of(nullptr, {}, seed, dtype).model);
          },
          nb::kw_only(), "seed"_a = 0, "dtype"_a = "float32")
      .def_prop_ro(
          "parameters",
          [](nb::handle_t<Model> self) {
            return views(self, [](nn::Parameter& one) { return one.value.view(); });
          },
          "Parameters by name (PyTorch's names): writable views of their memory\n"
          "(layer.parameters[\"weight\"][...] = 0).")
      .def_prop_ro(
          "gradients",
          [](nb::handle_t<Model> self) {
            return views(self, [](nn::Parameter& one) { return one.gradient.view(); });
          },
          "Gradients by parameter name, accumulated over backward passes: writable views.")
      .def(
          "zero_gradients",
          [](const Model& self) {
            const Call call(self.in_use());
            self.parameters().zero_gradients();
          },
          "Sets all gradients to 0.")
      .def("train", train, "step"_a,
           "Turns dropout on. The same step number drops the same elements.")
      .def(
          "evaluate",
          [](const Model& self) {
            const Call call(self.in_use());
            self.model().evaluate();
          },
          "Turns dropout off (the default).")
      .def_prop_ro(
          "training", [](const Model& self) { return self.model().training(); },
          "Whether dropout is on.")
      .def_prop_ro(
          "dtype",
          [](const Model& self) {
            return DTypeWord{std::string(dtype_name(self.parameters().dtype()))};
          },
          "\"float32\" or \"float64\".")
      .def("__repr__", [](const Model& self) {
        return fmt::format("<fovea.nn model of {} parameters, {} numbers of {}>",
                           std::distance(self.parameters().begin(), self.parameters().end()),
                           self.parameters().count(), dtype_name(self.parameters().dtype()));
      });
  nb::class_<Layer, Model>(module, "Layer", kLayerDoc);

  module.def(
      "set_threads",
      [](std::optional<std::int64_t> threads) {
        if (threads && (*threads < 1 || *threads > std::numeric_limits<int>::max())) {
          raise_value_error("threads: expected 1 or more (None: as many as OpenMP says), got {}",
                            *threads);
        }
        most_threads = static_cast<int>(threads.value_or(0));
      },
      "threads"_a.none(),
      "Sets the number of threads of layers and optimisers. None, the default: OpenMP's number\n"
      "(OMP_NUM_THREADS, else one per CPU).");
}

}  // namespace fovea::python
