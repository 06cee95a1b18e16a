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

@description('The addresses of secrets in a key vault, by the names of the settings that they are.')
param secretSettings object

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
      secrets: map(items(secretSettings), setting => { name: toLower(replace(setting.key, '_', '-')), keyVaultUrl: setting.value, identity: identityId })
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
          command: ['python', '-m', 'cosmos_outbox', 'relay', '--once']
          env: concat(
            map(items(appSettings), setting => { name: setting.key, value: setting.value }),
            map(items(secretSettings), setting => { name: setting.key, secretRef: toLower(replace(setting.key, '_', '-')) })
          )
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
        }
      ]
    }
  }
}
