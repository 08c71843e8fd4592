// SPDX-License-Identifier: Apache-2.0
//
// The element-by-element part of one GRU step (gru_cell.h).

#include "nn/gru_cell.h"

#include <algorithm>

#include "nn/elementary.h"
#include "nn/rows.h"

namespace fovea::nn {
namespace {

// Unless stated otherwise, pointers do not alias, so that compilers vectorize the loops.

/// Computes one item's step forward. `after` may equal `before`.
template <class Real>
void step_forward(std::int64_t hidden, Real* __restrict gates, const Real* __restrict hidden_gates,
                  const Real* before, Real* __restrict product, Real* after, Real* __restrict y) {
  Real* const r = gates;
  Real* const z = gates + hidden;
  Real* const n = gates + 2 * hidden;
  for (std::int64_t i = 0; i < 2 * hidden; ++i) {
    gates[i] = elementary::sigmoid(gates[i] + hidden_gates[i]);
  }
  for (std::int64_t i = 0; i < hidden; ++i) {
    product[i] = hidden_gates[2 * hidden + i];
    n[i] = elementary::tanh(n[i] + r[i] * product[i]);
    y[i] = (1 - z[i]) * n[i] + z[i] * before[i];
  }
  std::copy_n(y, hidden, after);
}

template <class Real>
void step_back(std::int64_t hidden, const Real* __restrict gates, const Real* __restrict before,
               const Real* __restrict product, Real* __restrict grad_hidden,
               Real* __restrict grad_gates, Real* __restrict grad_hidden_gates) {
  for (std::int64_t i = 0; i < hidden; ++i) {
    const Real r = gates[i], z = gates[hidden + i], n = gates[2 * hidden + i];
    const Real grad = grad_hidden[i];
    const Real grad_n = grad * (1 - z) * (1 - n * n);
    const Real grad_r = grad_n * product[i] * r * (1 - r);
    const Real grad_z = grad * (before[i] - n) * z * (1 - z);
    grad_hidden[i] = grad * z;
    grad_gates[i] = grad_hidden_gates[i] = grad_r;
    grad_gates[hidden + i] = grad_hidden_gates[hidden + i] = grad_z;
    grad_gates[2 * hidden + i] = grad_n;
    grad_hidden_gates[2 * hidden + i] = grad_n * r;
  }
}

}  // namespace

void gru_step(const GruStep& at, const StepItems& items) {
  const std::int64_t batch = at.before.extent(0), hidden = at.before.extent(1);
  with_real(at.before.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    for_each_rows(batch, 3 * hidden, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const Real* const before = row<Real>(at.before, item);
        Real* const after = row<Real>(at.after, item);
        Real* const y = row<Real>(at.y, item);
        if (items.have(item)) {
          step_forward(hidden, row<Real>(at.gates, item), row<Real>(at.hidden_gates, item), before,
                       row<Real>(at.product, item), after, y);
        } else {
          std::copy_n(before, hidden, after);
          std::fill_n(y, hidden, Real{0});
        }
      }
    });
  });
}

void gru_step_back(const GruStepBack& at, const StepItems& items) {
  const std::int64_t batch = at.before.extent(0), hidden = at.before.extent(1);
  with_real(at.before.dtype(), [&](auto zero) {
    using Real = decltype(zero);
    for_each_rows(batch, 3 * hidden, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        Real* const grad_gates = row<Real>(at.grad_gates, item);
        Real* const grad_hidden_gates = row<Real>(at.grad_hidden_gates, item);
        if (!items.have(item)) {
          std::fill_n(grad_gates, 3 * hidden, Real{0});
          std::fill_n(grad_hidden_gates, 3 * hidden, Real{0});
          continue;
        }
        Real* const grad_hidden = row<Real>(at.grad_hidden, item);
        if (at.grad_y.defined()) {
          const Real* const grad_y = row<Real>(at.grad_y, item);
          for (std::int64_t i = 0; i < hidden; ++i) grad_hidden[i] += grad_y[i];
        }
        step_back(hidden, row<Real>(at.gates, item), row<Real>(at.before, item),
                  row<Real>(at.product, item), grad_hidden, grad_gates, grad_hidden_gates);
      }
    });
  });
}

}  // namespace fovea::nn
