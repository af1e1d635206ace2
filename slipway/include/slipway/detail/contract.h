// What a tower takes and returns, by its manifest, and the check of a call's inputs against it.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slipway/detail/error.h"
#include "slipway/detail/json.h"

namespace slipway {

/// A size that varies between calls, within its bounds.
struct Dim {
    std::string name;
    int64_t low = 0;
    static constexpr int64_t unbounded = std::numeric_limits<int64_t>::max();
    int64_t high = unbounded;
};

/// One axis of an input or output.
struct Axis {
    static constexpr size_t fixed = std::numeric_limits<size_t>::max();
    size_t dim = fixed;  // number of the axis's Dim, or `fixed`
    int64_t size = 0;    // if fixed
};

/// The name, dtype and shape of an input or output.
struct TensorSpec {
    std::string name;
    at::ScalarType dtype = at::kFloat;
    std::vector<Axis> shape;
};

namespace detail {

inline const std::vector<std::pair<std::string_view, at::ScalarType>>& dtypes() {
    static const std::vector<std::pair<std::string_view, at::ScalarType>> known = {
        {"float32", at::kFloat}, {"int64", at::kLong},    {"int32", at::kInt}, {"float16", at::kHalf},
        {"bool", at::kBool},     {"uint8", at::kByte},    {"int8", at::kChar}, {"bfloat16", at::kBFloat16},
        {"int16", at::kShort},   {"float64", at::kDouble}};
    return known;
}

inline at::ScalarType dtype_of(const Json& name) {
    for (const auto& [text, dtype] : dtypes())
        if (text == name.text()) return dtype;
    throw std::runtime_error(name.path() + " is " + name.text() + ", which this loader does not know");
}

inline std::string name_of(at::ScalarType dtype) {
    for (const auto& [text, known] : dtypes())
        if (known == dtype) return std::string(text);
    return at::toString(dtype);
}

/// The inputs, outputs and demands of a tower.
class Contract {
 public:
    /// Read a tower of the manifest.
    explicit Contract(const Json& tower) {
        for (const Json& dim : tower.at("dims").array()) {
            Dim& made = dims.emplace_back();
            made.name = dim.at("name").text();
            made.low = dim.at("low").integer();
            if (const Json* high = dim.find("high")) made.high = high->integer();
        }
        inputs = tensors(tower.at("inputs"));
        if (const Json* found = tower.find("demands"))
            for (const Json& demand : found->array()) demands.push_back(demand.text());
        // Outputs may have dims that no input has: their sizes are for the caller to read.
        outputs = tensors(tower.at("outputs"));
    }

    /// Put inputs given by name into the manifest's order; refuse names that are missing or unknown.
    std::vector<at::Tensor> in_order(const std::unordered_map<std::string, at::Tensor>& given) const {
        std::vector<at::Tensor> ordered;
        std::string missing, unknown;
        for (const TensorSpec& input : inputs) {
            const auto found = given.find(input.name);
            if (found != given.end())
                ordered.push_back(found->second);
            else
                missing += (missing.empty() ? "" : ", ") + input.name;
        }
        if (given.size() > ordered.size())
            for (const auto& entry : given)
                if (std::none_of(inputs.begin(), inputs.end(),
                                 [&](const auto& each) { return each.name == entry.first; }))
                    unknown += (unknown.empty() ? "" : ", ") + entry.first;
        if (!missing.empty())
            refuse("there is no " + missing + (unknown.empty() ? "" : "; the tower takes no " + unknown));
        if (!unknown.empty()) refuse("the tower takes no " + unknown);
        return ordered;
    }

    /// Refuse inputs, given in the manifest's order, that are not what the manifest says.
    void require(const std::vector<at::Tensor>& given) const {
        if (given.size() != inputs.size())
            refuse(std::to_string(given.size()) + " inputs were given, and the tower takes " +
                   std::to_string(inputs.size()));
        std::vector<std::pair<int64_t, size_t>> sizes(dims.size(),
                                                      {-1, 0});  // of each dim, and the input that has it
        for (size_t i = 0; i < inputs.size(); ++i) require_kind(given[i], inputs[i]);
        for (size_t i = 0; i < inputs.size(); ++i)
            if (const std::string problem = wrong_sizes(given[i], i, sizes); !problem.empty())
                refuse(with_lengths(problem, inputs[i].name, given));
    }

    /// Whether callers can tell the towers apart: by names, dtypes and shapes, but not by bounds of sizes.
    bool has_tensors_of(const Contract& other) const {
        return words(inputs) == other.words(other.inputs) && words(outputs) == other.words(other.outputs);
    }

    /// What is wrong with inputs that a package has refused with these words.
    std::string meaning_of(std::string_view refusal, const std::vector<at::Tensor>& given) const {
        static constexpr std::string_view before = "<= 0 but received ";
        const std::string_view line = refusal.substr(0, refusal.find('\n'));
        const size_t at = line.rfind(before);
        if (at != std::string_view::npos) {
            const std::string_view digits = line.substr(at + before.size());
            size_t number = 0;
            const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
            if (read.ec == std::errc() && number >= 1 && number <= demands.size()) {
                const std::string& demand = demands[number - 1];  // begins with the name of an input
                return with_lengths(demand, demand.substr(0, demand.find(' ')), given);
            }
        }
        for (size_t i = 0; i < inputs.size(); ++i)
            if (const std::string problem = wrong_lengths(i, given); !problem.empty())
                return inputs[i].name + ": " + problem;
        return "the tower refuses the inputs: " + std::string(line);
    }

    std::vector<Dim> dims;
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::vector<std::string> demands;

 private:
    [[noreturn]] static void refuse(const std::string& why) { throw Error("input_refused", why); }

    std::vector<TensorSpec> tensors(const Json& entries) {
        std::vector<TensorSpec> found;
        for (const Json& entry : entries.array()) {
            TensorSpec& made = found.emplace_back();
            made.name = entry.at("name").text();
            made.dtype = dtype_of(entry.at("dtype"));
            for (const Json& axis : entry.at("shape").array())
                made.shape.push_back(axis.is_text() ? Axis{dim_named(axis.text()), 0}
                                                    : Axis{Axis::fixed, axis.integer()});
        }
        return found;
    }

    std::string words(const TensorSpec& spec) const {
        std::string sizes;
        for (const Axis& axis : spec.shape)
            sizes += (sizes.empty() ? "" : ", ") +
                     (axis.dim == Axis::fixed ? std::to_string(axis.size) : dims[axis.dim].name);
        return spec.name + ": " + name_of(spec.dtype) + " [" + sizes + "]";
    }

    std::string words(const std::vector<TensorSpec>& specs) const {
        std::string text;
        for (const TensorSpec& spec : specs) text += words(spec) + '\n';
        return text;
    }

    size_t dim_named(const std::string& name) {
        for (size_t i = 0; i < dims.size(); ++i)
            if (dims[i].name == name) return i;
        dims.push_back({name, 0});
        return dims.size() - 1;
    }

    void require_kind(const at::Tensor& tensor, const TensorSpec& spec) const {
        if (!tensor.defined()) refuse("there is no " + spec.name);
        if (tensor.scalar_type() == spec.dtype && static_cast<size_t>(tensor.dim()) == spec.shape.size() &&
            tensor.is_cpu() && tensor.layout() == at::kStrided)
            return;
        std::string sizes;
        if (tensor.layout() == at::kStrided)
            for (const int64_t size : tensor.sizes())
                sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
        refuse(words(spec) + " on cpu is taken, not " + name_of(tensor.scalar_type()) + " [" + sizes +
               "] on " + tensor.device().str());
    }

    /// The words for an input's sizes that are not the manifest's, or not those of the inputs before it; or
    /// "".
    std::string wrong_sizes(const at::Tensor& tensor, size_t which,
                            std::vector<std::pair<int64_t, size_t>>& sizes) const {
        const TensorSpec& spec = inputs[which];
        for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
            const int64_t size = tensor.size(static_cast<int64_t>(axis));
            if (spec.shape[axis].dim == Axis::fixed) {
                if (size != spec.shape[axis].size)
                    return spec.name + ": its axis " + std::to_string(axis) + " has " + grouped(size) +
                           " elements instead of " + grouped(spec.shape[axis].size);
                continue;
            }
            const Dim& dim = dims[spec.shape[axis].dim];
            auto& [known, whose] = sizes[spec.shape[axis].dim];
            if (known >= 0 && size != known)
                return spec.name + " has " + grouped(size) + " elements and " + inputs[whose].name + " " +
                       grouped(known) + ": both are " + dim.name;
            if (size < dim.low || size > dim.high)
                return spec.name + ": " + dim.name + " is " + grouped(size) + ", and must be " +
                       grouped(dim.low) +
                       (dim.high == Dim::unbounded ? " or more" : " to " + grouped(dim.high));
            if (known < 0) known = size, whose = which;
        }
        return "";
    }

    /// A problem of an input, and by how much its lengths are off, if they are.
    std::string with_lengths(const std::string& problem, const std::string& name,
                             const std::vector<at::Tensor>& given) const {
        std::string lengths;
        for (size_t i = 0; i < inputs.size(); ++i)
            if (inputs[i].name == name) lengths = wrong_lengths(i, given);
        return lengths.empty() ? problem : problem + "; " + lengths;
    }

    /// The words for an input of lengths that do not add up to the number of what they count; or "".
    std::string wrong_lengths(size_t which, const std::vector<at::Tensor>& given) const {
        static constexpr std::pair<std::string_view, std::string_view> counts[] = {
            {"lengths", "key_lengths"}, {"lengths", "values"}, {"key_lengths", "values"}};
        const std::string& name = inputs[which].name;
        const size_t dot = name.rfind('.');
        if (dot == std::string::npos) return "";
        for (const auto& [counting, counted] : counts) {
            const std::string other = name.substr(0, dot) + "." + std::string(counted);
            const auto found = std::find_if(inputs.begin(), inputs.end(),
                                            [&](const TensorSpec& each) { return each.name == other; });
            if (name.substr(dot + 1) != counting || found == inputs.end()) continue;
            const auto total = given[which].sum().item<int64_t>();
            const int64_t there = given[static_cast<size_t>(found - inputs.begin())].size(0);
            if (total == there && !given[which].lt(0).any().item<bool>()) return "";
            return "they add up to " + grouped(total) + ", and " +
                   (total > there ? "exceed" : "fall short of") + " the " + grouped(there) + " " +
                   std::string(counted);
        }
        return "";
    }

    /// A number as people read it: 1,234,567.
    static std::string grouped(int64_t number) {
        std::string digits = std::to_string(number);
        for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
            digits.insert(static_cast<size_t>(at), ",");
        return digits;
    }
};

}  // namespace detail
}  // namespace slipway
