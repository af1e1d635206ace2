// Measures the C++ loader: `loader_cost ARTIFACT TOWER INPUTS.pt [NEWER]`; prints one line of JSON.
//
// Calls are compared with those of torch's runner on the same weights, in turn, round by round. Memory is
// that of the whole process after its first call, less what it had before it loaded anything.

#include <ATen/Parallel.h>
#include <slipway/loader.h>
#include <torch/serialize.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) {
    return std::chrono::duration<double>(Clock::now() - begun).count();
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

std::vector<at::Tensor> in_order(const std::string& path, const std::vector<slipway::TensorSpec>& specs) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto given = torch::pickle_load(bytes).toGenericDict();
    std::vector<at::Tensor> inputs;
    for (const auto& spec : specs) inputs.push_back(given.at(spec.name).toTensor());
    return inputs;
}

// Bytes of this process, by a line of /proc/self/smaps_rollup.
long long memory(const std::string& kind) {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);)
        if (line.rfind(kind + ":", 0) == 0) return std::stoll(line.substr(kind.size() + 1)) * 1024;
    return -1;
}

// The packages of a tower as torch's own runner has them: nothing is checked, and order is the caller's.
std::vector<std::unique_ptr<slipway::detail::Package>> bare_packages(const std::string& root,
                                                                     const std::string& tower) {
    const slipway::detail::MappedFile file(root + "/prepared.json");
    const auto index = slipway::detail::Json::parse(file.text(), "prepared.json");
    std::vector<std::unique_ptr<slipway::detail::Package>> packages;
    for (const auto& entry : index.at("towers").array())
        if (entry.at("name").text() == tower)
            for (const auto& package : entry.at("packages").array())
                packages.push_back(std::make_unique<slipway::detail::Package>(
                    root, package, index.at("chunk").size(), 1, nullptr));
    return packages;
}

std::vector<size_t> places(const std::vector<std::string>& wanted, const std::vector<std::string>& among) {
    std::vector<size_t> found;
    for (const auto& name : wanted)
        found.push_back(std::find(among.begin(), among.end(), name) - among.begin());
    return found;
}

}  // namespace

int main(int count, char** values) {
    if (count < 4) return 2;
    const std::string artifact = values[1], name = values[2];
    at::set_num_threads(1);
    slipway::Options options;
    options.check = slipway::Check::never;  // a thread that hashes is no part of a call
    {
        slipway::load(artifact, name, options);
    }  // operators' libraries are loaded once in a process
    const long long before = memory("Anonymous");
    std::vector<double> loads;
    for (int i = 0; i < 5; ++i) {
        const auto begun = Clock::now();
        const slipway::Tower loaded = slipway::load(artifact, name, options);
        loads.push_back(seconds_since(begun));
    }
    slipway::Tower tower = slipway::load(artifact, name, options);
    const auto inputs = in_order(values[3], tower.inputs());
    const auto first = Clock::now();
    tower.run(inputs);
    const double first_s = seconds_since(first);
    std::printf("{\"load_s\": %.4f, \"first_call_ms\": %.3f, \"anonymous\": %lld, \"resident\": %lld",
                median(loads), first_s * 1e3, memory("Anonymous") - before, memory("Rss"));

    auto bare = bare_packages(artifact, name);
    std::vector<std::vector<size_t>> orders;
    std::vector<std::string> names;
    for (const auto& spec : tower.inputs()) names.push_back(spec.name);
    for (const auto& package : bare)
        orders.push_back(places(package->takes, names)), names = package->returns;
    std::vector<double> extra_us, bare_us;
    for (int round = 0; round < 9; ++round) {
        std::vector<double> mine, its;
        for (int call = 0; call < 300; ++call) {
            auto begun = Clock::now();
            tower.run(inputs);
            mine.push_back(seconds_since(begun));
            begun = Clock::now();
            std::vector<at::Tensor> tensors = inputs;
            for (size_t i = 0; i < bare.size(); ++i) {
                std::vector<at::Tensor> given;
                for (const size_t which : orders[i]) given.push_back(tensors[which]);
                tensors = bare[i]->run(given);
            }
            its.push_back(seconds_since(begun));
        }
        bare_us.push_back(median(its) * 1e6);
        extra_us.push_back((median(mine) - median(its)) * 1e6);
    }
    std::printf(", \"bare_us\": %.2f, \"extra_us\": %.2f, \"extra_us_low\": %.2f, \"extra_us_high\": %.2f",
                median(bare_us), median(extra_us), *std::min_element(extra_us.begin(), extra_us.end()),
                *std::max_element(extra_us.begin(), extra_us.end()));
    if (count > 4) {
        std::vector<double> swaps;
        for (int i = 0; i < 10; ++i) {
            const auto begun = Clock::now();
            tower.swap(i % 2 == 0 ? values[4] : artifact);
            swaps.push_back(seconds_since(begun) * 1e3);
            tower.run(inputs);
        }
        std::printf(", \"swap_ms\": %.2f, \"swap_ms_most\": %.2f", median(swaps),
                    *std::max_element(swaps.begin(), swaps.end()));
    }
    std::printf("}\n");
    return 0;
}
