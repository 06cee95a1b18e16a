# The relay, or the subscriber, of the contact service: docker build --file deploy/containers/worker.Dockerfile .
FROM python:3.12-slim
WORKDIR /app
COPY deploy/requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY application application
COPY cosmos_changefeed cosmos_changefeed
COPY cosmos_outbox cosmos_outbox
COPY domain domain
COPY infra infra
ENV OUTBOX_SERVICE=infra.bootstrap
USER nobody
CMD ["python", "-m", "cosmos_outbox", "relay", "--probes", "0.0.0.0:8080"]
