# The command line with a network: `foretoken serve` is a vLLM server without a GPU, `foretoken observe` drives a real
# one.
#
#     docker build -t foretoken . && docker run -p 8000:8000 foretoken
#     docker run foretoken ask 'vllm serve …' --gpu h200 --clients 16
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked -p foretoken --features observe

FROM debian:bookworm-slim
RUN useradd --uid 10001 --create-home foretoken
COPY --from=build /src/target/dist/foretoken /usr/local/bin/foretoken
COPY --from=build /src/experiments/serve.toml /experiments/serve.toml
USER 10001
WORKDIR /home/foretoken
EXPOSE 8000
# Is the server of `serve` there? Other commands end before the first question.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/8000 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]"]
ENTRYPOINT ["foretoken"]
CMD ["serve", "/experiments/serve.toml", "--host", "0.0.0.0"]
