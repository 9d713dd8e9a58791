# One image for every process of grns: `grns server`, `grns worker start MODULE:pool`, and each daemon alone.
FROM python:3.12-slim-bookworm AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY grns ./grns
COPY workers ./workers
RUN python -m venv /opt/grns && /opt/grns/bin/pip install --no-cache-dir '.[http,api,otlp]'

FROM python:3.12-slim-bookworm
ENV PATH=/opt/grns/bin:$PATH PYTHONUNBUFFERED=1 GRNS_LOG_FORMAT=json
COPY --from=build /opt/grns /opt/grns
RUN useradd --system --no-create-home --uid 10001 grns
USER 10001
WORKDIR /app
ENTRYPOINT ["grns"]
CMD ["server"]
