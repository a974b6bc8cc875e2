/* metrics_http.c: serves metrics on the loopback interface by libmicrohttpd: see metrics.h. It is
 * loaded when a port is asked for: it brings seven libraries along, for which no other command
 * shall wait. */
#include "tools/top/metrics.h"

#include "tools/base/complain.h"

#ifdef HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

#define LIBRARY "libmicrohttpd.so.12"

/* What is called of it. */
#define FUNCTIONS(_)                   \
    _(MHD_start_daemon)                \
    _(MHD_stop_daemon)                 \
    _(MHD_get_daemon_info)             \
    _(MHD_create_response_from_buffer) \
    _(MHD_add_response_header)         \
    _(MHD_queue_response)              \
    _(MHD_destroy_response)

static struct {
#define POINTER(name) __typeof__(&name) name;
    FUNCTIONS(POINTER)
} mhd;

static bool load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);
    bool found = library != NULL;

#define FIND(name)                                              \
    *(void **)&mhd.name = found ? dlsym(library, #name) : NULL; \
    found = found && mhd.name;
    FUNCTIONS(FIND)
    if (!found)
        command_complain("top: --prometheus: %s (a port is served by libmicrohttpd; a file needs "
                         "nothing)",
                         dlerror());
    return found;
}

static struct MHD_Response *metrics_of(const struct metrics *metrics)
{
    struct MHD_Response *response = NULL;
    struct ag_text text = {0};
    int folder;

    if (metrics->open(metrics->data, &folder) != STATUS_OK)
        return NULL;
    if (metrics_render(folder, &text))
        response =
            mhd.MHD_create_response_from_buffer(text.length, text.data, MHD_RESPMEM_MUST_COPY);
    if (response)
        (void)mhd.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, CONTENT_TYPE);
    if (folder >= 0)
        close(folder);
    ag_text_finish(&text);
    return response;
}

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status,
                             struct MHD_Response *response)
{
    enum MHD_Result result =
        response ? mhd.MHD_queue_response(connection, status, response) : MHD_NO;

    if (response)
        mhd.MHD_destroy_response(response);
    return result;
}

static enum MHD_Result say(struct MHD_Connection *connection, unsigned status, const char *line)
{
    return queue(connection, status,
                 mhd.MHD_create_response_from_buffer(strlen(line), (void *)(uintptr_t)line,
                                                     MHD_RESPMEM_PERSISTENT));
}

/* A thread of the library calls it, for one connection at a time. */
static enum MHD_Result answer(void *data, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state) /* NOLINT: their type */
{
    struct MHD_Response *response;

    (void)version, (void)upload, (void)upload_size, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (strcmp(url, "/metrics") != 0)
        return say(connection, MHD_HTTP_NOT_FOUND, "the metrics are at /metrics\n");
    response = metrics_of(data);
    if (!response)
        return say(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "the counters cannot be read\n");
    return queue(connection, MHD_HTTP_OK, response);
}

static struct MHD_Daemon *start(const struct metrics *metrics, uint16_t port)
{
    struct sockaddr_in loopback = {
        .sin_family = AF_INET,
        .sin_port = htons(port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };

    return mhd.MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, port, NULL, NULL, answer,
                                (void *)(uintptr_t)metrics, MHD_OPTION_SOCK_ADDR, &loopback,
                                MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
}

int metrics_serve(const struct metrics *metrics, uint16_t port)
{
    const union MHD_DaemonInfo *info;
    struct MHD_Daemon *daemon;
    sigset_t ends;
    int signal;

    if (!load())
        return STATUS_FAILED;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* of the library's thread, too */
    daemon = start(metrics, port);
    if (!daemon) {
        command_complain("top: --prometheus=%u: port %u cannot be listened on: %s", port, port,
                         strerror(errno));
        return STATUS_FAILED;
    }
    info = mhd.MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    printf("http://127.0.0.1:%u/metrics\n", info ? info->port : port);
    (void)fflush(stdout);
    (void)sigwait(&ends, &signal);
    mhd.MHD_stop_daemon(daemon);
    return STATUS_OK;
}

#else

int metrics_serve(const struct metrics *metrics, uint16_t port)
{
    (void)metrics;
    command_complain("top: --prometheus=%u: this allograft was built without libmicrohttpd "
                     "(libmicrohttpd-dev), and serves no port; a file it can write",
                     port);
    return STATUS_FAILED;
}

#endif
