// A relay that runs at set times and ends when all is forwarded: an execution that failed says that it was not all. Two
// that overlap share the leases.
param name string
param location string
param tags object
param identityId string
param environmentId string
param registryServer string
param image string
param appSettings object


@description('It runs, and does nothing.')
param paused bool

@description('Five fields, in UTC, such as */5 * * * *')
param schedule string

resource job 'Microsoft.App/jobs@2025-07-01' = {
  name: name
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      triggerType: 'Schedule'
      replicaTimeout: 3600
      replicaRetryLimit: 0
      scheduleTriggerConfig: {
        cronExpression: schedule
        parallelism: 1
        replicaCompletionCount: 1
      }
      registries: [
        {
          server: registryServer
          identity: identityId
        }
      ]
    }
    template: {
      containers: [
        {
          name: 'main'
          image: image
          command: paused ? ['true'] : ['python', '-m', 'cosmos_outbox', 'relay', '--once']
          env: map(items(appSettings), setting => { name: setting.key, value: setting.value })
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
        }
      ]
    }
  }
}
