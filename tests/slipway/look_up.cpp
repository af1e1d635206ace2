// A server that does a tower's lookups itself: `look_up DENSE LOOKUPS TOWER INPUTS.pt` prints each output as
// examples/cpp_runner does. The prepared artifact LOOKUPS has a tower that returns what the one of DENSE
// takes.

#include <slipway/loader.h>
#include <torch/serialize.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

int main(int count, char** values) try {
    if (count != 5) return 2;
    std::ifstream file(values[4], std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    slipway::Tensors inputs;
    for (const auto& entry : torch::pickle_load(bytes).toGenericDict())
        inputs.emplace(entry.key().toStringRef(), entry.value().toTensor());
    const slipway::Tower lookups = slipway::load(values[2], values[3]);
    slipway::Options options;
    options.look_up = [&](const slipway::Tensors& given) { return lookups.run(given); };
    const slipway::Tower dense = slipway::load(values[1], values[3], options);
    const slipway::Tensors answer = dense.run(inputs);
    for (const slipway::TensorSpec& output : dense.outputs()) {
        const at::Tensor found = answer.at(output.name).to(at::kDouble).contiguous();
        std::printf("%s [%lld]", output.name.c_str(), static_cast<long long>(found.numel()));
        for (int64_t i = 0; i < found.numel(); ++i) std::printf(" %.9g", found.const_data_ptr<double>()[i]);
        std::printf("\n");
    }
    return 0;
} catch (const slipway::Error& error) {
    std::cerr << error.code() << ": " << error.what() << '\n';
    return 1;
}
