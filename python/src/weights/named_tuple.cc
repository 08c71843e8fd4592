// SPDX-License-Identifier: Apache-2.0

#include "weights/named_tuple.h"

#include <cstddef>
#include <utility>

namespace nb = nanobind;

namespace fovea::python {

PyTypeObject* add_named_tuple(nb::module_& module, const char* attribute,
                              PyStructSequence_Desc& description) {
  PyTypeObject* const type = PyStructSequence_NewType(&description);
  if (type == nullptr) nb::raise_python_error();
  module.attr(attribute) = nb::borrow(reinterpret_cast<PyObject*>(type));
  return type;
}

PyObject* make_named_tuple(PyTypeObject* type, std::span<nb::object> items) {
  nb::object result = nb::steal(PyStructSequence_New(type));
  if (!result.is_valid()) nb::raise_python_error();
  for (std::size_t i = 0; i < items.size(); ++i) {
    nb::object item = items[i].is_valid() ? std::move(items[i]) : nb::none();
    PyStructSequence_SetItem(result.ptr(), static_cast<Py_ssize_t>(i), item.release().ptr());
  }
  return result.release().ptr();
}

}  // namespace fovea::python
