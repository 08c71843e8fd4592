// SPDX-License-Identifier: Apache-2.0
//
// Training: the loss, Adam, gradient clipping, learning rate schedules, checkpoints.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include "fovea/nn/checkpoint.h"
#include "fovea/nn/cross_entropy.h"
#include "fovea/nn/optimizer.h"

#include "arrays/calls.h"
#include "arrays/new_arrays.h"
#include "nn/layer.h"
#include "nn/words.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fovea::python {
namespace {

struct CrossEntropy {
  explicit CrossEntropy(const nn::CrossEntropyOptions& options) : loss(options) {}

  std::atomic_flag in_use;
  nn::CrossEntropy loss;
  Tensor logits;  // of the last forward; backward needs them
};

struct Adam {
  Adam(const Model& of, const nn::AdamOptions& options)
      : model(of), adam(of.parameters(), options) {}

  Model model;
  nn::Adam adam;
};

double forward(CrossEntropy& self, const GivenArray& logits, const GivenIntegers& targets) {
  const Call call(self.in_use);
  self.logits = {};
  Tensor kept(ContiguousArray({logits, "logits"}).view());
  const Tensor numbers = int64_tensor(targets.object.ptr(), "targets");
  const double loss = call.run([&] { return self.loss.forward(kept, numbers); });
  self.logits = std::move(kept);  // a move keeps the data pointer that `loss` refers to
  return loss;
}

NumpyArray backward(CrossEntropy& self, double factor) {
  const Call call(self.in_use);
  if (!self.logits.defined()) throw std::runtime_error("backward: expected a forward before it");
  return numpy_array(call.run([&] { return TensorView(self.loss.backward(factor)); }));
}

void add_cross_entropy(nb::module_& module) {
  nb::class_<CrossEntropy>(
      module, "CrossEntropy",
      R"(Mean of -log softmax(logits)[target] over the targets not ignored, like torch.nn.CrossEntropyLoss.

ignored          target index to ignore: padding (torch's ignore_index)
label_smoothing  this share of each target is spread over all classes (Szegedy et al. 2016))")
      .def(
          "__init__",
          [](CrossEntropy* self, std::optional<std::int64_t> ignored, double label_smoothing) {
            new (self) CrossEntropy({.ignored = ignored, .label_smoothing = label_smoothing});
          },
          "ignored"_a = nb::none(), "label_smoothing"_a = 0.0)
      .def(
          "forward", forward, "logits"_a, "targets"_a,
          "logits [..., classes], float32 or float64; targets, integers [...]. Returns the loss; 0 "
          "if\n"
          "all targets are ignored.")
      .def("backward", backward, "factor"_a = 1.0,
           "Returns the gradient of `factor` times the loss with respect to the logits.")
      .def_prop_ro(
          "counted", [](const CrossEntropy& self) { return self.loss.counted(); },
          "Number of targets not ignored in the last forward.")
      .def_prop_ro(
          "correct", [](const CrossEntropy& self) { return self.loss.correct(); },
          "Number of targets in the last forward that were the argmax of their logits.");
}

/// Returns a dictionary from parameter name to a view of one moment of its gradient.
template <class Which>
NumpyArrays moments(nb::handle_t<Adam> self, const Which& which) {
  const nb::dict arrays;
  for (nn::Adam::Moments& of : nb::cast<Adam&>(self).adam.moments()) {
    arrays[of.parameter->name.c_str()] = nb::steal(numpy_writable_view(which(of), self.ptr()));
  }
  return read_only(arrays);
}

void add_adam(nb::module_& module) {
  nb::class_<Adam>(
      module, "Adam",
      R"(Adam (Kingma and Ba 2015), or with weight_decay, AdamW (Loshchilov and Hutter 2019), as in
torch.optim. Optimises all parameters that the model has at construction.

model         a Model, or a layer with its own model
weight_decay  each step subtracts weight_decay * learning_rate times the parameters)")
      .def(
          "__init__",
          [](Adam* self, const Model& model, double beta1, double beta2, double epsilon,
             double weight_decay) {
            const Call call(model.in_use());
            new (self) Adam(
                model,
                {.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = weight_decay});
          },
          "model"_a, nb::kw_only(), "beta1"_a = 0.9, "beta2"_a = 0.999, "epsilon"_a = 1e-8,
          "weight_decay"_a = 0.0)
      .def(
          "step",
          [](Adam& self, double learning_rate) {
            const Call call(self.model.in_use());
            call.run([&] { self.adam.step(learning_rate); });
          },
          "learning_rate"_a, "Updates the parameters from their gradients.")
      .def_prop_rw(
          "steps", [](const Adam& self) { return self.adam.steps(); },
          [](Adam& self, std::int64_t steps) {
            if (steps < 0) raise_value_error("steps: expected 0 or more, got {}", steps);
            self.adam.set_steps(steps);
          },
          nb::for_setter("steps"_a),
          "Number of steps made so far; set it to resume training from a checkpoint.")
      .def_prop_ro(
          "means",
          [](nb::handle_t<Adam> self) {
            return moments(self, [](nn::Adam::Moments& of) { return of.mean.view(); });
          },
          "Running mean of each parameter's gradient, by parameter name: writable views.")
      .def_prop_ro(
          "squares",
          [](nb::handle_t<Adam> self) {
            return moments(self, [](nn::Adam::Moments& of) { return of.square.view(); });
          },
          "Running mean of each parameter's squared gradient, by parameter name: writable views.");
}

void add_clipping(nb::module_& module) {
  module.def(
      "clip_gradients",
      [](const Model& model, double largest) {
        const Call call(model.in_use());
        return call.run([&] { return nn::clip_gradients(model.parameters(), largest); });
      },
      "model"_a, "largest"_a,
      R"(Scales all gradients of a model so that their Euclidean norm, as one vector, is at most `largest`,
like torch.nn.utils.clip_grad_norm_. Returns the norm before scaling. If the norm is not finite, the
gradients are unchanged.)");
  module.def(
      "gradient_norm",
      [](const Model& model) {
        const Call call(model.in_use());
        return call.run([&] { return nn::gradient_norm(model.parameters()); });
      },
      "model"_a, "Returns the Euclidean norm of all gradients of a model as one vector.");
}

void add_schedule(nb::module_& module) {
  nb::class_<nn::Schedule>(
      module, "Schedule",
      R"(Learning rates that grow linearly to `peak` over `warmup` steps, then follow `kind`.

kind  "constant"; "inverse_root", decay by 1 / sqrt(step) (Vaswani et al. 2017, sec. 5.3); "cosine",
      decay to 0 at step `total`)")
      .def(
          "__init__",
          [](nn::Schedule* self, double peak, const ScheduleWord& kind, std::int64_t warmup,
             std::int64_t total) {
            new (self) nn::Schedule{
                .peak = peak, .kind = schedule_kind_of(kind), .warmup = warmup, .total = total};
            self->rate(0);  // checks the numbers
          },
          "peak"_a = 1e-3, "kind"_a = "constant", "warmup"_a = 0, "total"_a = 0)
      .def("rate", &nn::Schedule::rate, "steps"_a,
           "Returns the learning rate of the next step after `steps` steps.");
}

void add_checkpoints(nb::module_& module) {
  module.def(
      "save",
      [](const Model& model, const GivenPath& path) {
        const std::string name = path_of(path.object.ptr());
        const Call call(model.in_use());
        call.run([&] { nn::save_parameters(model.parameters(), name); });
      },
      "model"_a, "path"_a,
      R"(Writes all parameters of a model by name to a .safetensors or .npz file. A .safetensors
file has the format that safetensors.torch.save_file writes for the state_dict of the same torch
modules. An existing file is replaced atomically, or not changed if writing fails. Raises OSError,
and ValueError for another file extension.)");
  module.def(
      "load",
      [](const Model& model, const GivenPath& path) {
        const std::string name = path_of(path.object.ptr());
        const Call call(model.in_use());
        call.run([&] { nn::load_parameters(model.parameters(), name); });
      },
      "model"_a, "path"_a,
      R"(Reads parameters written by save(). The file must have one floating-point tensor for every
parameter, with its name and shape, and no others; float32 and float64 are converted. Raises
ValueError listing missing, unexpected and mismatched tensors, before any parameter changes; OSError
if the file cannot be read.)");
}

}  // namespace

void add_training(nb::module_& module) {
  add_cross_entropy(module);
  add_adam(module);
  add_clipping(module);
  add_schedule(module);
  add_checkpoints(module);
}

}  // namespace fovea::python
