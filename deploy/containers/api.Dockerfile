# A FastAPI program with relay and subscriber in it: docker build --file deploy/containers/api.Dockerfile .
FROM python:3.12-slim
WORKDIR /app
COPY deploy/requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
RUN pip install --no-cache-dir "fastapi>=0.115,<1" "uvicorn>=0.30,<1"
COPY cosmos_changefeed cosmos_changefeed
COPY cosmos_outbox cosmos_outbox
COPY examples examples
USER nobody
CMD ["python", "-m", "uvicorn", "examples.fastapi.app:app", "--host", "0.0.0.0", "--port", "8000"]
