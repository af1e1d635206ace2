// Reads what the C++ loader reads: `readers sha256 FILE` prints its digest twice, by the processor's
// instructions and without; `readers json FILE` prints the value again, or the reason for which it is none.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>

#include "slipway/detail/json.h"
#include "slipway/detail/sha256.h"

using slipway::detail::Json;
using slipway::detail::Sha256;

namespace {

void print(const Json& json) {
    if (json.is_null()) {
        std::printf("null");
    } else if (json.is_text()) {
        std::printf("\"");
        for (const char letter : json.text())
            std::printf("\\u%04x", static_cast<unsigned char>(letter));  // a byte each
        std::printf("\"");
    } else if (json.is_list()) {
        const char* before = "[";
        for (const Json& each : json.array()) std::printf("%s", before), print(each), before = ",";
        std::printf(json.array().empty() ? "[]" : "]");
    } else if (json.is_object()) {
        const char* before = "{";
        for (const auto& [key, value] : json.object()) {
            std::printf("%s\"", before);
            for (const char letter : key) std::printf("\\u%04x", static_cast<unsigned char>(letter));
            std::printf("\":"), print(value), before = ",";
        }
        std::printf(json.object().empty() ? "{}" : "}");
    } else if (json.is_integer()) {
        std::printf("%lld", static_cast<long long>(json.integer()));
    } else if (json.is_real()) {
        std::printf("%.17g", json.real());
    } else {
        std::printf(json.boolean() ? "true" : "false");
    }
}

std::string digest(const std::string& data, bool by_instructions) {
    Sha256 sha(by_instructions);
    for (size_t at = 0, step = 1; at < data.size(); at += step, step = step * 3 % 1009 + 1)  // in odd pieces
        sha.update(data.data() + at, std::min(step, data.size() - at));
    return Sha256::hexadecimal(sha.finish());
}

}  // namespace

int main(int count, char** values) try {
    if (count != 3) return 2;
    std::ifstream file(values[2], std::ios::binary);
    const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (std::string(values[1]) == "json") {
        print(Json::parse(data, "text"));
    } else {
        const bool by_default = Sha256::has_instructions();
        std::printf("%s %s", digest(data, by_default).c_str(), digest(data, false).c_str());
    }
    return 0;
} catch (const std::exception& error) {
    std::printf("%s", error.what());
    return 1;
}
