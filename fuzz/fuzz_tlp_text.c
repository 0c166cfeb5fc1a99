/* Fuzz target: what `dxpu tlp` reads.  The first byte says which: lines of a log, in which TLPs are
   found and printed; or a line of JSON, which becomes a TLP.  A TLP that is encoded says the same
   as JSON, and that again the same TLP.
   libFuzzer: -max_len=2048 */
#include "dxpu.h"

#include "tlp_fields.h"
#include "tlp_json.h"
#include "tlp_line.h"
#include "tlp_text.h"
#include "input.h"
#include "quiet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_json(const dxpu_tlp *t, const uint8_t *bytes, size_t len)
{
    static tlp_json again;
    static uint8_t out[4 * DXPU_PREFIXES_MAX + DXPU_TLP_MAX_BYTES];
    size_t out_len = 0;
    json_t *object = tlp_json_from(t, true);
    must(object && tlp_json_to(object, &again));
    must(dxpu_tlp_encode(&again.tlp, out, sizeof out, &out_len) == DXPU_OK);
    must(out_len == len && memcmp(out, bytes, len) == 0);
    json_decref(object);
}

static void check_line(const char *line)
{
    static tlp_text text;
    char device[TLP_TEXT_DEVICE_BYTES];
    dxpu_bytes b;
    dxpu_tlp t;
    must(!tlp_text_device(line, device) || strlen(device) < sizeof device);
    if (!tlp_text_find(line, &text))
        return;
    must(text.len <= sizeof text.bytes && text.prefix_bytes <= text.len);
    b.ptr = text.bytes;
    b.len = text.len;
    if (dxpu_tlp_decode_header(b, &t) == DXPU_OK) {
        json_t *object = tlp_json_from(&t, false);
        must(object != NULL);
        json_decref(object);
        tlp_line(nowhere(), &t);
    }
    if (dxpu_tlp_decode(b, &t) == DXPU_OK && dxpu_tlp_check(&t) == DXPU_OK) {
        static uint8_t out[TLP_TEXT_MAX_BYTES];
        size_t len = 0;
        must(dxpu_tlp_encode(&t, out, sizeof out, &len) == DXPU_OK);
        check_json(&t, out, len);
    }
}

static void check_object(json_t *object)
{
    static tlp_json in;
    static uint8_t out[4 * DXPU_PREFIXES_MAX + DXPU_TLP_MAX_BYTES];
    size_t len = 0;
    dxpu_bytes b = { out, 0 };
    dxpu_tlp t;
    if (!tlp_json_to(object, &in)) {
        must(in.why[0] && strlen(in.why) < sizeof in.why);
        return;
    }
    if (dxpu_tlp_encode(&in.tlp, out, sizeof out, &len) != DXPU_OK)
        return;
    b.len = len;
    must(dxpu_tlp_receive(b, &t) == DXPU_OK);
    check_json(&t, out, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text, *line, *end;
    json_t *object;
    if (!size)
        return 0;
    text = malloc(size); /* with a zero for the first byte, and exactly as long */
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] & 1) {
        object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object))
            check_object(object);
        json_decref(object);
    }
    for (line = text; !(data[0] & 1) && line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        check_line(line);
    }
    free(text);
    return 0;
}
