/* gles.c - draw by OpenGL ES 3.1 on the first GPU, without a screen, and check every pixel
   SPDX-License-Identifier: MIT

       gles [FRAMES]

   Prints the renderer's name, and a line "ok NAME" or "FAILED NAME" for each check.  With FRAMES it
   draws as many more, each read back, and prints how many a second; 0: until it is killed, or a
   frame is wrong.  It is linked with the guest's libraries: see desktop.py. */
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GLES3/gl31.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDE = 128, TEXTURE = 32, WORDS = 1 << 14, GROUP = 64 };

static int failed;
static uint8_t pixels[SIDE][SIDE][4];

static void check(const char *name, int truth)
{
    printf("%s %s\n", truth ? "ok" : "FAILED", name);
    fflush(stdout);
    failed |= !truth;
}

static void end(const char *what, unsigned error)
{
    printf("FAILED %s: 0x%x\n", what, error);
    exit(1);
}

/* ==== Display and shaders ===================================================================== */

static void start(void)
{
    static const EGLint config[] = { EGL_RENDERABLE_TYPE, EGL_OPENGL_ES3_BIT, EGL_SURFACE_TYPE, 0,
                                     EGL_NONE };
    static const EGLint version[] = { EGL_CONTEXT_MAJOR_VERSION, 3, EGL_CONTEXT_MINOR_VERSION, 1,
                                      EGL_NONE };
    EGLDisplay display =
        eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, NULL);
    EGLConfig chosen = NULL;
    EGLContext context;
    EGLint count = 0;
    if (!eglInitialize(display, NULL, NULL) || !eglBindAPI(EGL_OPENGL_ES_API))
        end("display", (unsigned)eglGetError());
    (void)eglChooseConfig(display, config, &chosen, 1, &count);
    context = eglCreateContext(display, chosen, EGL_NO_CONTEXT, version);
    if (!context || !eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context))
        end("context", (unsigned)eglGetError());
    printf("renderer %s\n", (const char *)glGetString(GL_RENDERER));
    printf("version %s\n", (const char *)glGetString(GL_VERSION));
}

static void add(GLuint program, GLenum stage, const char *text)
{
    GLuint shader = glCreateShader(stage);
    GLint good = 0;
    char log[512] = "";
    glShaderSource(shader, 1, &text, NULL);
    glCompileShader(shader);
    glGetShaderiv(shader, GL_COMPILE_STATUS, &good);
    glGetShaderInfoLog(shader, sizeof log, NULL, log);
    if (!good)
        end(log, glGetError());
    glAttachShader(program, shader);
}

static GLuint linked(GLuint program)
{
    GLint good = 0;
    glLinkProgram(program);
    glGetProgramiv(program, GL_LINK_STATUS, &good);
    if (!good)
        end("program", glGetError());
    return program;
}

static GLuint drawing(const char *vertex, const char *fragment)
{
    GLuint program = glCreateProgram();
    add(program, GL_VERTEX_SHADER, vertex);
    add(program, GL_FRAGMENT_SHADER, fragment);
    return linked(program);
}

/* ==== Pictures ================================================================================ */

/* The half below the diagonal of a square, red by column and green by row; `phase` is blue. */
static const char triangle_vertex[] = "#version 310 es\n"
                                      "void main() {\n"
                                      "    vec2 at = vec2(gl_VertexID & 1, gl_VertexID >> 1);\n"
                                      "    gl_Position = vec4(at * 2.0 - 1.0, 0.0, 1.0);\n"
                                      "}\n";
static const char triangle_fragment[] =
    "#version 310 es\n"
    "precision highp float;\n"
    "uniform float phase;\n"
    "out vec4 color;\n"
    "void main() { color = vec4(floor(gl_FragCoord.xy) / 255.0, phase / 255.0, 1.0); }\n";
/* Texels one by one, repeatedly. */
static const char texture_fragment[] =
    "#version 310 es\n"
    "precision highp float;\n"
    "uniform highp sampler2D image;\n"
    "out vec4 color;\n"
    "void main() { color = texelFetch(image, ivec2(gl_FragCoord.xy) & 31, 0); }\n";
static const char square_vertex[] = "#version 310 es\n"
                                    "void main() {\n"
                                    "    vec2 at = vec2(gl_VertexID & 1, gl_VertexID >> 1);\n"
                                    "    gl_Position = vec4(at * 4.0 - 1.0, 0.0, 1.0);\n"
                                    "}\n";
static const char sum_compute[] =
    "#version 310 es\n"
    "layout(local_size_x = 64) in;\n"
    "layout(std430, binding = 0) readonly buffer From { uint from[]; };\n"
    "layout(std430, binding = 1) writeonly buffer To { uint to[]; };\n"
    "shared uint part[64];\n"
    "void main() {\n"
    "    uint i = gl_LocalInvocationIndex;\n"
    "    part[i] = from[gl_GlobalInvocationID.x];\n"
    "    barrier();\n"
    "    to[gl_GlobalInvocationID.x] = part[i] * 5u ^ part[63u - i];\n"
    "}\n";

static void target(void)
{
    GLuint image, frame;
    glGenTextures(1, &image);
    glBindTexture(GL_TEXTURE_2D, image);
    glTexStorage2D(GL_TEXTURE_2D, 1, GL_RGBA8, SIDE, SIDE);
    glGenFramebuffers(1, &frame);
    glBindFramebuffer(GL_FRAMEBUFFER, frame);
    glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, image, 0);
    glViewport(0, 0, SIDE, SIDE);
    glClearColor(0, 0, 0, 0);
    check("target", glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE);
}

static void draw(void)
{
    glClear(GL_COLOR_BUFFER_BIT);
    glDrawArrays(GL_TRIANGLES, 0, 3);
    memset(pixels, 0x5a, sizeof pixels);
    glReadPixels(0, 0, SIDE, SIDE, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
}

/* Pixels that are not the triangle's of this phase; those that the diagonal halves are either. */
static int wrong(unsigned phase)
{
    static const uint8_t outside[4] = { 0, 0, 0, 0 };
    int count = 0;
    for (unsigned y = 0; y < SIDE; y++) {
        for (unsigned x = 0; x < SIDE; x++) {
            const uint8_t inside[4] = { (uint8_t)x, (uint8_t)y, (uint8_t)phase, 255 };
            int is_inside = !memcmp(pixels[y][x], inside, 4);
            int is_outside = !memcmp(pixels[y][x], outside, 4);
            if (x + y + 1 < SIDE)
                count += !is_inside;
            else if (x + y + 1 > SIDE)
                count += !is_outside;
            else
                count += !is_inside && !is_outside;
        }
    }
    return count;
}

static int frame(GLint phase, unsigned n)
{
    glUniform1f(phase, (float)(n & 255));
    draw();
    return wrong(n & 255) == 0;
}

static uint8_t texel(unsigned x, unsigned y, unsigned part)
{
    return (uint8_t)(x * 37 + y * 101 + part * 11 + x * y);
}

static void textures(void)
{
    static uint8_t image[TEXTURE][TEXTURE][4];
    GLuint texture;
    int bad = 0;
    for (unsigned i = 0; i < sizeof image; i++)
        ((uint8_t *)image)[i] = texel(i / 4 % TEXTURE, i / 4 / TEXTURE, i % 4);
    glGenTextures(1, &texture);
    glBindTexture(GL_TEXTURE_2D, texture);
    glTexStorage2D(GL_TEXTURE_2D, 1, GL_RGBA8, TEXTURE, TEXTURE);
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, TEXTURE, TEXTURE, GL_RGBA, GL_UNSIGNED_BYTE, image);
    glUseProgram(drawing(square_vertex, texture_fragment));
    draw();
    for (unsigned y = 0; y < SIDE; y++) {
        for (unsigned x = 0; x < SIDE; x++)
            bad += memcmp(pixels[y][x], image[y % TEXTURE][x % TEXTURE], 4) != 0;
    }
    check("texture", !bad && glGetError() == GL_NO_ERROR);
}

/* ==== Numbers ================================================================================= */

static void compute(void)
{
    static uint32_t from[WORDS];
    const uint32_t *to;
    GLuint program = glCreateProgram(), buffer[2];
    int bad = 0;
    add(program, GL_COMPUTE_SHADER, sum_compute);
    glUseProgram(linked(program));
    for (unsigned i = 0; i < WORDS; i++)
        from[i] = i * 2654435761u;
    glGenBuffers(2, buffer);
    for (unsigned i = 0; i < 2; i++) {
        glBindBufferBase(GL_SHADER_STORAGE_BUFFER, i, buffer[i]);
        glBufferData(GL_SHADER_STORAGE_BUFFER, sizeof from, i ? NULL : from, GL_DYNAMIC_READ);
    }
    glDispatchCompute(WORDS / GROUP, 1, 1);
    glMemoryBarrier(GL_ALL_BARRIER_BITS);
    to = glMapBufferRange(GL_SHADER_STORAGE_BUFFER, 0, sizeof from, GL_MAP_READ_BIT);
    for (unsigned i = 0; to && i < WORDS; i++) {
        unsigned other = i / GROUP * GROUP + (GROUP - 1 - i % GROUP);
        bad += to[i] != (from[i] * 5 ^ from[other]);
    }
    check("compute", to && !bad && glGetError() == GL_NO_ERROR);
    glUnmapBuffer(GL_SHADER_STORAGE_BUFFER);
}

/* What a query says of the triangle, or of nothing of it. */
static GLuint seen(int visible)
{
    GLuint query, result = 99;
    glGenQueries(1, &query);
    if (!visible) {
        glEnable(GL_SCISSOR_TEST);
        glScissor(SIDE - 1, SIDE - 1, 1, 1);
    }
    glBeginQuery(GL_ANY_SAMPLES_PASSED, query);
    glDrawArrays(GL_TRIANGLES, 0, 3);
    glEndQuery(GL_ANY_SAMPLES_PASSED);
    glGetQueryObjectuiv(query, GL_QUERY_RESULT, &result);
    glDisable(GL_SCISSOR_TEST);
    return result;
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void frames(GLint phase, unsigned long count)
{
    double begin = now();
    unsigned long i = 0;
    printf("drawing\n");
    fflush(stdout);
    while ((!count || i < count) && frame(phase, (unsigned)i))
        i++;
    if (count)
        printf("frames %lu %.1f\n", i, (double)i / (now() - begin));
    check("frames", count && i == count);
}

int main(int argc, char **argv)
{
    GLuint triangle;
    GLint phase;
    start();
    target();
    triangle = drawing(triangle_vertex, triangle_fragment);
    phase = glGetUniformLocation(triangle, "phase");
    glUseProgram(triangle);
    check("triangle", frame(phase, 77) && glGetError() == GL_NO_ERROR);
    check("control_another_phase_is_wrong", wrong(78) > SIDE * SIDE / 3);
    check("query", seen(1) == 1);
    check("query_of_nothing", seen(0) == 0);
    textures();
    compute();
    glUseProgram(triangle);
    if (argc > 1)
        frames(phase, strtoul(argv[1], NULL, 10));
    return failed;
}
